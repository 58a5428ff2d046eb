"""Which of several outputs of Slurm's says the state of a node, and which of its lines are of none."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import written
from tests.captures.slurm_lists import IN_SLURM, found, results

FAIL = Verdict.FAIL


def record(state: str, reason: str = "") -> str:
    said = f"   Reason={reason} [root@2026-07-20T11:00:00]\n" if reason else ""
    return (
        f"NodeName=gpu003 Arch=x86_64 CoresPerSocket=48\n   CPUAlloc=0 CPUTot=192 Gres=gpu:8\n   State={state}\n{said}"
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
    assert FAIL not in found(IN_SLURM, f"{record('IDLE')}\n{accused}\n", tmp_path).values()
