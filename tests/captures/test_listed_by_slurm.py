"""Files with Slurm's listings of nodes concern the whole capture; text beside the listings is read as in any file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.captures import NoCaptureError
from clusterproof.plugins.captures.collection import read_layout
from clusterproof.plugins.core import nodeset
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.slurm import parse_scontrol as scontrol
from clusterproof.plugins.evidence.slurm import parse_sinfo as sinfo
from clusterproof.plugins.inventory import resolve
from tests.captures.captured import ILL, written, xids
from tests.captures.slurm_lists import (
    IN_SLURM,
    REASONS,
    RECORDS,
    SINFO,
    WITHOUT_PROMPT,
    messages_about,
    not_a_row,
    verdicts_of,
)
from tests.evidence.gpu.nvidia_smi_q import FULL

PASS, FAIL = Verdict.PASS, Verdict.FAIL
OUT = {"gpu002": FAIL, "gpu004": FAIL}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SINFO, OUT | {"gpu009": FAIL, "gpu006": PASS, "gpu007": PASS}),
        (REASONS, OUT | {"gpu009": FAIL}),
        (SINFO + "$ sinfo -R\n" + REASONS, OUT | {"gpu009": FAIL, "gpu006": PASS, "gpu007": PASS}),
        (RECORDS, OUT | {"gpu006": PASS}),
    ],
)
def test_what_slurm_lists_alone_are_the_nodes(text: str, expected: Mapping[str, Verdict], tmp_path: Path) -> None:
    verdicts = verdicts_of(IN_SLURM, text, tmp_path)
    assert {name: verdict if verdict is FAIL else PASS for name, verdict in verdicts.items()} == expected


def test_in_a_nodes_own_session_slurm_lists_no_further_nodes(tmp_path: Path) -> None:
    path = written(tmp_path, **{"gpu002.txt": f"$ dmesg\n{ILL}{SINFO}"})
    assert xids(path / "gpu002.txt") == {"gpu002": FAIL}
    assert [target.name for target in resolve(f"capture:{path}").targets] == ["gpu002"]


ECC = FULL.format(reset="No", dram=14)
LOG = "".join(f"[   {second}.500000] usb 1-1: new device\n" for second in range(10, 40)) + ILL.replace("  13.", "  43.")
LOST = "53:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev ff)\n"
IN_ONE_LINE = "".join(f"{' '.join(record.split())}\n" for record in RECORDS.split("\n\n") if record)


@pytest.mark.parametrize("between", ["", "\n"])
@pytest.mark.parametrize("listed", [WITHOUT_PROMPT, REASONS, RECORDS, IN_ONE_LINE])
@pytest.mark.parametrize(
    ("check", "output"),
    [("gpu.no_uncorrected_ecc", ECC), ("gpu.no_xid", LOG), ("gpu.pcie_errors", LOST)],
)
def test_an_output_beside_what_slurm_lists_is_read_as_in_any_file(
    check: str, output: str, listed: str, between: str, tmp_path: Path
) -> None:
    for text in (listed + between + output, output + between + listed):
        assert verdicts_of(check, text, tmp_path) == {"x": FAIL}


def test_what_another_output_says_is_none_of_the_last_node_that_scontrol_shows() -> None:
    text = f"{RECORDS.rstrip()}\nGPU 0\n   Reason=bad State=DOWN\n"
    assert "bad" not in str(scontrol.read_scontrol(text))
    listed = slurm.listed_in(text)
    assert not any("bad" in record for records in listed.by_node.values() for record in records)
    assert "Reason=bad" in listed.rest


def test_records_and_tables_of_one_output_are_all_read(tmp_path: Path) -> None:
    verdicts = verdicts_of(IN_SLURM, RECORDS + WITHOUT_PROMPT, tmp_path)
    assert [name for name, verdict in verdicts.items() if verdict is FAIL] == ["gpu002", "gpu004", "gpu009"]


def test_a_node_without_a_reason_is_named_and_not_accused_though_a_list_of_reasons_has_it(tmp_path: Path) -> None:
    row = "none                 Unknown   Unknown             gpu003"
    for text in (f"{REASONS}{row}\n", f"{WITHOUT_PROMPT}{REASONS}{row}\n"):  # the headings of sinfo -R
        assert "gpu003" not in verdicts_of(IN_SLURM, text, tmp_path)
        assert messages_about(tmp_path / "x.txt") == [f"capture: x.txt: {not_a_row(row)}"]


def rows(count: int, state: str = "idle", first: int = 1) -> str:
    return "".join(f"gpu{number:05} 1 gpu {state}\n" for number in range(first, first + count))


@pytest.mark.long
def test_a_long_table_is_read_whole_or_refused(tmp_path: Path) -> None:
    titles = "NODELIST NODES PARTITION STATE\n"
    path = written(tmp_path, **{"x.txt": titles + rows(4095) + rows(1, "down*", 4096)}) / "x.txt"
    captured, reader = read_layout(path)
    assert len(captured.nodes) == 4096
    assert "down*" in reader.text_of(path, "gpu04096")
    written(tmp_path, **{"x.txt": titles + rows(4990) + rows(10, "down*", 4991)})
    with pytest.raises(NoCaptureError, match="more than 4,096 nodes"):
        read_layout(path)


@pytest.mark.parametrize(
    ("row", "shown"),
    [("gpu[004,006,008,0  down*", "gpu[004,006,008,0  down*"), ("gpu004 frobbed", "gpu004 frobbed")],
)
def test_a_row_that_is_not_understood_is_named(row: str, shown: str, tmp_path: Path) -> None:
    path = written(tmp_path, **{"x.txt": f"NODELIST STATE\ngpu001 idle\ngpu002 down*\n{row}\n"}) / "x.txt"
    assert messages_about(path) == [f"capture: x.txt: {not_a_row(shown)}"]
    assert verdicts_of(IN_SLURM, path.read_text(), tmp_path)["gpu002"] is FAIL


def test_a_table_that_is_refused_is_named_though_another_is_read(tmp_path: Path) -> None:
    text = "NODELIST STATE\ngpu[001-002] idle\n\nNODELIST REASON STATE\ngpu003 bad GPU down\n"
    path = written(tmp_path, **{"x.txt": text}) / "x.txt"
    assert messages_about(path) == [
        "capture: x.txt: sinfo: sinfo's table has REASON between other columns: print it as the last"
    ]


MANY = "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n" + "".join(f"a{n} up 1 1 idle g[1-4096]\n" for n in range(99))


@pytest.mark.long
def test_names_that_stand_in_very_many_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="name nodes 250,000 times and more; print one partition"):
        sinfo.read_sinfo(MANY)
    assert verdicts_of(IN_SLURM, MANY, tmp_path).keys() == {"x"}
    in_loop = "".join(f"$ sinfo\nNODELIST STATE REASON\ng[1-4096] down {number}\n" for number in range(25))
    with pytest.raises(NoCaptureError, match="more than 100,000 records and rows of Slurm's nodes"):
        read_layout(written(tmp_path, **{"x.txt": in_loop}) / "x.txt")


def test_nodes_are_expanded_once_and_what_is_said_again_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def expand(text: str) -> tuple[str, ...]:
        texts.append(text)
        return nodeset.expand(text)

    monkeypatch.setattr(sinfo, "expand", expand)
    listed = slurm.listed_in("PARTITION STATE NODELIST\n" + "".join(f"p{n} idle g[1-9]\n" for n in range(20)).rstrip())
    assert texts == ["g[1-9]"]
    assert {len(list(lines)) for lines in listed.by_node.values()} == {1}
