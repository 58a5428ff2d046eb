"""Which of several Slurm outputs determines a node's state, and which lines belong to no node."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from tests.captures.captured import WELL, written
from tests.captures.slurm_lists import IN_SLURM, messages_about, not_a_row, results, verdicts_of

FAIL = Verdict.FAIL


def record(state: str, reason: str = "") -> str:
    line = f"   Reason={reason} [root@2026-07-20T11:00:00]\n" if reason else ""
    return (
        f"NodeName=gpu003 Arch=x86_64 CoresPerSocket=48\n   CPUAlloc=0 CPUTot=192 Gres=gpu:8\n   State={state}\n{line}"
    )


DRAINED = record("IDLE+DRAIN", "replace the board")


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=gpu003 CPUs=192 State=CLOUD",
        "NodeName=gpu003 NodeAddr=10.0.0.3 Sockets=2 CoresPerSocket=48 Gres=gpu:8 RealMemory=2000000 State=UNKNOWN",
        "NodeName=gpu003 CPUs=192 \\\n  Gres=gpu:8 \\\n  Weight=1 State=CLOUD",
    ],
)
def test_a_line_of_slurms_configuration_is_no_record(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, **{"gpu003/x.txt": f"{DRAINED}\n{line}\n", "x.txt": f"{line}\n{DRAINED}{line}\n"})
    for verdicts in (results(IN_SLURM, path / "gpu003" / "x.txt"), results(IN_SLURM, path / "x.txt")):
        (result,) = verdicts.values()
        assert result.verdict is FAIL
        assert "replace the board, by root" in result.message
    (path / "x.txt").unlink()
    assert [result.verdict for result in results(IN_SLURM, path).values()] == [FAIL]
    accused = line.replace("CLOUD", "DOWN").replace("UNKNOWN", "DOWN")
    assert FAIL not in verdicts_of(IN_SLURM, f"{record('IDLE')}\n{accused}\n", tmp_path).values()


IDLE, SAID_IDLE = record("IDLE"), "$ sinfo\nNODELIST STATE\ngpu003 idle\n"
SAID_DRAINED = "$ sinfo\nNODELIST STATE\ngpu003 drng\n"
REASON = "$ sinfo -R\nREASON USER TIMESTAMP NODELIST\nGPU 3 fell off bus root 2026-07-21T11:00:00 gpu003\n"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ((IDLE, REASON), "(GPU 3 fell off bus, by root at 2026-07-21T11:00:00)"),
        ((IDLE, SAID_DRAINED), "DRNG"),
        ((DRAINED, SAID_IDLE), "IDLE+DRAIN (replace the board"),
        ((SAID_IDLE, REASON), "(GPU 3 fell off bus"),
        ((SAID_DRAINED, REASON), "DRNG (GPU 3 fell off bus"),
        ((REASON, record("IDLE+DRAIN")), "IDLE+DRAIN (GPU 3 fell off bus"),
        ((IDLE, DRAINED), "IDLE+DRAIN (replace the board"),
        ((SAID_IDLE, SAID_DRAINED), "DRNG"),
        ((DRAINED, IDLE), ""),
        ((SAID_DRAINED, SAID_IDLE), ""),
        ((REASON, SAID_IDLE), ""),
        ((REASON, IDLE), ""),
        ((SAID_DRAINED, IDLE), ""),
    ],
)
def test_in_one_file_the_later_output_counts_unless_it_says_less(
    outputs: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path = (
        written(tmp_path, **{"x.txt": "".join(f"$ scontrol show node gpu003\n{output}" for output in outputs)})
        / "x.txt"
    )
    (result,) = results(IN_SLURM, path).values()
    assert (result.verdict is FAIL) == bool(message)
    assert message in result.message


@pytest.mark.parametrize("names", [("after.txt", "before.txt"), ("before.txt", "after.txt")])
@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (DRAINED, IDLE, "replace the board"),
        (DRAINED, SAID_IDLE, "replace the board"),
        (IDLE, SAID_DRAINED, "DRNG"),
        (IDLE, REASON, "GPU 3 fell off bus"),
        (record("IDLE+DRAIN"), REASON, "IDLE+DRAIN (GPU 3 fell off bus"),
        (record("IDLE*"), SAID_IDLE, "no response from it (IDLE*)"),
        (record("IDLE+FROB"), SAID_IDLE, "IDLE+FROB"),
    ],
)
def test_the_worst_state_in_several_files_counts(
    one: str, other: str, message: str, names: tuple[str, str], tmp_path: Path
) -> None:
    path = written(tmp_path, **{f"gpu003/{name}": text for name, text in zip(names, (one, other), strict=True)})
    (result,) = results(IN_SLURM, path).values()
    assert message in result.message


def test_a_drain_keeps_its_own_reason_beside_another_file_that_has_one(tmp_path: Path) -> None:
    path = written(tmp_path, **{"gpu003/a.txt": DRAINED, "gpu003/b.txt": record("IDLE", "reboot by an operator")})
    (result,) = results(IN_SLURM, path).values()
    assert result.verdict is FAIL
    assert "IDLE+DRAIN (replace the board, by root" in result.message


def test_nothing_sticks_to_the_last_word_of_a_record(tmp_path: Path) -> None:
    of_one_line = "NodeName=gpu003 CPUTot=192 Gres=gpu:8 State=IDLE+DRAIN"
    path = written(tmp_path, **{"x.txt": f"{of_one_line}\n{SAID_IDLE}"}) / "x.txt"
    assert "reports it as IDLE+DRAIN; expected" in results(IN_SLURM, path)["gpu003"].message
    path.write_text(f"{DRAINED}{SAID_IDLE}")
    assert "by root at 2026-07-20T11:00:00)" in results(IN_SLURM, path)["gpu003"].message


@pytest.mark.parametrize(
    "name", ["case-4711", "2026-07-20", "ticket-4711", "x", "10.0.0.3", "gpu004.cluster", "gpu004", "GPU004"]
)
def test_the_only_record_is_of_a_capture_that_has_no_other_nodes_name(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, **{f"{name}/slurm.txt": DRAINED, f"{name}/dmesg.txt": WELL}) / name
    (result,) = results(IN_SLURM, path).values()
    assert (result.verdict is FAIL) == ("004" not in name)
    if "004" in name:
        assert "Slurm lists 1 node (out of use: gpu003), and gpu004" in result.message.lower().replace("slurm", "Slurm")


def test_a_row_of_an_unknown_state_is_named_whatever_its_node_is_called(tmp_path: Path) -> None:
    titles = "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n"
    rows = [f"gpu up 1 1 {state} {name}" for state, name in (("weird", "alpha"), ("idle", "beta"), ("idle", "gamma"))]
    path = written(tmp_path, **{"x.txt": "\n".join((titles.strip(), *rows, ""))}) / "x.txt"
    assert messages_about(path) == [f"capture: x.txt: {not_a_row(rows[0])}"]


def test_a_record_that_several_captures_have_is_of_none_whose_name_it_has_not(tmp_path: Path) -> None:
    names = ("10.0.0.3", "10.0.0.4", "gpu003")
    path = written(tmp_path, **{f"{name}/slurm.txt": DRAINED for name in names})
    verdicts = {name: result.verdict for name, result in results(IN_SLURM, path).items()}
    assert [name for name, verdict in verdicts.items() if verdict is FAIL] == ["gpu003"]
    (path / "10.0.0.3" / "slurm.txt").write_text(DRAINED.replace("gpu003", "gpu007"))
    assert results(IN_SLURM, path)["10.0.0.3"].verdict is FAIL


def test_each_row_behind_an_empty_line_is_named(tmp_path: Path) -> None:
    rows = ["idle gpu002", "drng gpu003", "down* gpu004"]
    path = written(tmp_path, **{"x.txt": "\n\n".join(("STATE NODELIST\nidle gpu001", *rows))}) / "x.txt"
    assert messages_about(path) == [f"capture: x.txt: {not_a_row(row)}" for row in rows]


def test_a_record_that_is_cut_before_its_state_is_named(tmp_path: Path) -> None:
    whole = DRAINED.replace(
        "   State", "   OS=Linux 6.8.0-1021-aws 23-Ubuntu SMP Mon Dec 9 23:51:33 UTC 2026\n   State"
    )
    narrow = "".join(f"{part}\n" for line in whole.splitlines() for part in textwrap.wrap(line, 18))
    path = written(tmp_path, **{"gpu003.txt": narrow}) / "gpu003.txt"
    expected = "scontrol's record of gpu003 has no State; expected whole records, in lines of 20 characters and more"
    assert f"capture: gpu003.txt: {expected}" in [line.replace(", of gpu003", "") for line in messages_about(path)]


@pytest.mark.parametrize("reason", ["No devices were found", "NVIDIA-SMI has failed because it couldn't communicate"])
@pytest.mark.parametrize("name", ["gpu001/sinfo.txt", "x.txt"])
def test_what_a_reason_says_of_gpus_is_no_output_of_a_node(reason: str, name: str, tmp_path: Path) -> None:
    listed = f"REASON USER TIMESTAMP NODELIST\n{reason} root 2026-07-21T11:00:00 gpu007\n"
    path = written(tmp_path, **{name: listed}) / name.partition("/")[0]
    (captured,) = read_capture(path, resolve(f"capture:{path}"), ("nvml",))
    assert captured.evidence.collectors["nvml"].status is Status.UNCOLLECTED
    assert "slurm_node" in captured.evidence.collectors
