"""`slurm:…`: the nodes of a job, and the hosts where Slurm is asked."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.inventory import resolve, slurm
from clusterproof.plugins.transport.srun import COLLECTOR, JOBS


@pytest.mark.parametrize("host", ["", "root@", "head:port", "head:70000", "head:0", "[::1]:22", "root@::1", "he ad"])
def test_a_submit_host_that_none_can_be_is_refused_in_one_line(host: str) -> None:
    with pytest.raises(InventoryError) as wrong:
        resolve("slurm:gpu", {"via": f"ssh:{host}"})
    expected = "expected controller, nodes, or ssh:[user@]HOST[:port]"
    assert str(wrong.value) == f"--via 'ssh:{host}' is not a way to a Slurm cluster; {expected}"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The jobs with nodes, to which a test adds some: of two nodes."""
    node = {"partitions": "all", "features": "", "state": "MIXED", "address": "", "reason": ""}
    nodes = [{**node, "name": name} for name in ("cpu001", "gpu001")]
    running: list[list[str]] = []
    answers = {COLLECTOR: {"nodes": nodes, "partitions": []}, JOBS: {"jobs": running, "job": ""}}
    monkeypatch.setattr(
        slurm, "ask_slurm", lambda *_: {name: Collected(Status.READ, value) for name, value in answers.items()}
    )
    return running


@pytest.mark.parametrize(
    ("running", "note"),
    [
        (("77+0", "77+1"), "not validated: the other components of this heterogeneous job, 77+1"),
        (("77_2", "77_1"), "not validated: the other tasks of this array, 77_1"),
    ],
)
def test_the_parts_of_a_slurm_job_that_are_not_its_own_are_said(
    running: tuple[str, str], note: str, jobs: list[list[str]]
) -> None:
    jobs += [[running[0], "77", "gpu001", "RUNNING"], [running[1], "78", "cpu001", "RUNNING"]]
    cluster = resolve("slurm:job:77")
    assert [target.name for target in cluster.targets] == ["gpu001"]
    assert cluster.notes == (note,)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (["9", "9", "gpu001"], "slurm_jobs: a job is not understood: \"['9', '9', 'gpu001']\""),
        (["9", "9", "gpu[1-", "RUNNING"], "slurm_jobs: nodes is not understood: 'gpu[1-'"),
        (["9", "9", "", "RUNNING"], "slurm_jobs: nodes is not understood: ''"),
    ],
)
def test_jobs_that_are_not_understood_are_one_line(row: list[str], problem: str, jobs: list[list[str]]) -> None:
    jobs.append(row)
    with pytest.raises(InventoryError) as wrong:
        resolve("slurm:job:9")
    assert str(wrong.value).startswith(f"--cluster 'slurm:job:9': {problem}; expected a host where scontrol works")


def test_of_one_task_of_an_array_the_others_are_not_said(jobs: list[list[str]]) -> None:
    jobs += [["7_1", "8", "gpu001", "RUNNING"], ["7_2", "7", "cpu001", "RUNNING"]]
    assert [resolve(f"slurm:job:{job}").notes for job in ("7_1", "7_2", "8")] == [()] * 3


def test_an_array_whose_tasks_run_is_not_called_one_that_does_not(jobs: list[list[str]]) -> None:
    jobs += [["7_1", "8", "gpu001", "RUNNING"], ["7_2", "9", "cpu001", "RUNNING"]]
    with pytest.raises(InventoryError) as wrong:
        resolve("slurm:job:7")
    expected = "job '7' is an array whose tasks 7_1, 7_2 have nodes; expected one of squeue -t R,SI,ST,RS"
    assert str(wrong.value) == f"--cluster 'slurm:job:7': {expected}"
