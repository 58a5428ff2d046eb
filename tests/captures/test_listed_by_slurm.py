"""Files in which Slurm lists nodes: they are the capture's, and what stands beside them is read as in any file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures import NoCaptureError
from clusterproof.plugins.captures.collection import not_understood, read_capture, read_layout
from clusterproof.plugins.core import nodeset
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.inventory import resolve
from tests.captures.captured import ILL, written, xids
from tests.evidence.gpu.nvidia_smi_q import FULL

PASS, FAIL = Verdict.PASS, Verdict.FAIL
IN_SLURM = "control_plane.slurm_nodes"

SINFO = """\
$ sinfo
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu          up 14-00:00:0      2  drng@ gpu[002,004]
gpu          up 14-00:00:0      1  down$ gpu009
gpu          up 14-00:00:0      2    mix gpu[006-007]
"""
REASONS = """\
REASON               USER      TIMESTAMP           NODELIST
Kill task failed     root      2024-01-25T15:12:23 gpu[002,004]
NHC: GPU is lost     root      2024-01-26T15:12:23 gpu009
"""
RECORDS = "".join(
    f"NodeName={name} Arch=x86_64\n   CPUAlloc=0 CPUTot=192\n   State={state}\n   Partitions=gpu\n\n"
    for name, state in (("gpu002", "IDLE+DRAIN"), ("gpu004", "DOWN*"), ("gpu006", "MIXED"))
)


def found(check: str, text: str, folder: Path) -> dict[str, Verdict]:
    """What a check says of each node of a capture that is one file."""
    path = written(folder, **{"x.txt": text}) / "x.txt"
    cluster = resolve(f"capture:{path}")
    captured = read_capture(path, cluster, collector_names())
    known = nodes(cluster, {one.evidence.node: one.evidence for one in captured})
    return {name: evaluate(node_checks()[check], node).verdict for name, node in known.items()}


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
    verdicts = found(IN_SLURM, text, tmp_path)
    assert {name: verdict if verdict is FAIL else PASS for name, verdict in verdicts.items()} == expected


def test_in_a_nodes_own_session_slurm_lists_no_further_nodes(tmp_path: Path) -> None:
    path = written(tmp_path, **{"gpu002.txt": f"$ dmesg\n{ILL}{SINFO}"})
    assert xids(path / "gpu002.txt") == {"gpu002": FAIL}
    assert [target.name for target in resolve(f"capture:{path}").targets] == ["gpu002"]


ECC = FULL.format(reset="No", dram=14)
LOG = "".join(f"[   {second}.500000] usb 1-1: new device\n" for second in range(10, 40)) + ILL.replace("  13.", "  43.")
LOST = "53:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev ff)\n"
WITHOUT_PROMPT = SINFO.partition("\n")[2]
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
        assert found(check, text, tmp_path) == {"x": FAIL}


def test_what_another_output_says_is_none_of_the_last_node_that_scontrol_shows() -> None:
    text = f"{RECORDS.rstrip()}\nGPU 0\n   Reason=bad State=DOWN\n"
    assert "bad" not in str(slurm.read_scontrol(text))
    listed = slurm.listed_in(text)
    assert not any("bad" in record for records in listed.by_node.values() for record in records)
    assert "Reason=bad" in listed.rest


def test_records_and_tables_of_one_output_are_all_read(tmp_path: Path) -> None:
    verdicts = found(IN_SLURM, RECORDS + WITHOUT_PROMPT, tmp_path)
    assert [name for name, verdict in verdicts.items() if verdict is FAIL] == ["gpu002", "gpu004", "gpu009"]


def test_a_node_in_a_list_of_reasons_is_out_of_use_though_none_is_given(tmp_path: Path) -> None:
    text = REASONS + "none                 Unknown   Unknown             gpu003\n"
    assert found(IN_SLURM, text, tmp_path)["gpu003"] is FAIL
    with_states = WITHOUT_PROMPT + text  # which the list of reasons comes behind
    assert found(IN_SLURM, with_states, tmp_path)["gpu003"] is FAIL


def rows(count: int, state: str = "idle", first: int = 1) -> str:
    return "".join(f"gpu{number:05} 1 gpu {state}\n" for number in range(first, first + count))


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
    lines = not_understood(read_capture(path, resolve(f"capture:{path}"), collector_names()))
    expected = "expected a state of nodes, and names such as gpu[001-016,020]"
    assert lines == [f"capture: x.txt: sinfo's row '{shown}' is not understood; {expected}"]
    assert found(IN_SLURM, path.read_text(), tmp_path)["gpu002"] is FAIL


def test_a_table_that_is_refused_is_named_though_another_is_read(tmp_path: Path) -> None:
    text = "NODELIST STATE\ngpu[001-002] idle\n\nNODELIST REASON STATE\ngpu003 bad GPU down\n"
    path = written(tmp_path, **{"x.txt": text}) / "x.txt"
    lines = not_understood(read_capture(path, resolve(f"capture:{path}"), collector_names()))
    assert lines == ["capture: x.txt: sinfo: sinfo's table has REASON between other columns: print it as the last"]


MANY = "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n" + "".join(f"a{n} up 1 1 idle g[1-4096]\n" for n in range(99))


def test_names_that_stand_in_very_many_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="name nodes 250,000 times and more; print one partition"):
        slurm.read_sinfo(MANY)
    assert found(IN_SLURM, MANY, tmp_path).keys() == {"x"}
    in_loop = "".join(f"$ sinfo\nNODELIST STATE REASON\ng[1-4096] down {number}\n" for number in range(25))
    with pytest.raises(NoCaptureError, match="more than 100,000 records and rows of Slurm's nodes"):
        read_layout(written(tmp_path, **{"x.txt": in_loop}) / "x.txt")


def test_nodes_are_expanded_once_and_what_is_said_again_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def expand(text: str) -> tuple[str, ...]:
        asked.append(text)
        return nodeset.expand(text)

    monkeypatch.setattr(slurm, "expand", expand)
    listed = slurm.listed_in("PARTITION STATE NODELIST\n" + "".join(f"p{n} idle g[1-9]\n" for n in range(20)).rstrip())
    assert asked == ["g[1-9]"]
    assert {len(list(said)) for said in listed.by_node.values()} == {1}
