"""An administrator's reason and drain stay, however much the words resemble Slurm's or clusterproof's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusterproof.integrations.slurm.control import NodeState, parse_node
from clusterproof.integrations.slurm.drains import Drain, is_unexplained, unexplained
from tests.faults import BY_NAME
from tests.integrations.slurm.reasons import REASONS
from tests.integrations.slurm.scripts import Scripted, eventually, lines, scripted
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm_version import VERSIONS

NAME = "gpu001"
LOST = BY_NAME["a GPU that is lost"]
MISTAKEN = ("Prolog error again, PSU ticket 4711 - do NOT resume (jd)", "Prolog error\nPSU ticket 4711")
SHOWN = """NodeName=gpu001 Arch=x86_64
   State=IDLE+DRAIN ThreadsPerCore=1
   Partitions=gpu
   CurrentWatts=0 AveWatts=0
   Reason={first} [{by}@2026-03-01T08:00:00]
{more}   Comment=Reason=none
"""


def shown(reason: str, by: str = "slurm") -> NodeState:
    """The output of `scontrol show node` for a node drained with this reason; its first line has the author."""
    first, *more = reason.split("\n")
    return parse_node(SHOWN.format(first=first, by=by, more="".join(f"          {line}\n" for line in more)))


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_of_an_administrators_is_read_whole_and_is_none_of_slurms(reason: str) -> None:
    node = shown(reason)
    assert (node.reason, node.is_drained, node.by) == (reason, True, "slurm")
    assert not is_unexplained(node, "", lambda: "slurm")


@pytest.mark.parametrize(
    ("reason", "by", "slurm_user", "is_slurms"),
    [
        ("Prolog error", "slurm", "slurm", True),
        ("Epilog error", "root", "root", True),
        ("Epilog error : reboot issued", "slurm", "slurm", True),
        ("Prolog error", "jd", "slurm", False),
        ("Epilog error", "root", "slurm", False),
        ("Prolog error ", "slurm", "slurm", False),
    ],
)
def test_slurms_words_are_slurms_where_it_has_given_them_itself(
    reason: str, by: str, slurm_user: str, is_slurms: bool
) -> None:
    assert is_unexplained(shown(reason, by), "", lambda: slurm_user) is is_slurms


@pytest.mark.parametrize(
    ("jobs", "requested", "of_job"),
    [
        (None, "", "42"),
        (None, "41", "41"),
        ({"42"}, "", "41"),  # Slurm may drain the node once more for 42: the record must last until then
        ({"42"}, "42", "41"),
        ({"41", "42"}, "", "42"),
        (set(), "41", "41"),
    ],
)
def test_the_reason_is_that_of_a_drain_whose_job_slurm_has_no_more(
    jobs: set[str] | None, requested: str, of_job: str
) -> None:
    drains = {job: Drain("prolog", job, (), "clusterproof: why", None, float(job)) for job in ("41", "42")}
    drain = unexplained(drains.values(), drains.get(requested), frozenset(jobs) if jobs is not None else None)
    assert drain == drains[of_job]


@pytest.fixture(scope="module", params=VERSIONS)
def bed(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    requeued = "SchedulerParameters=nohold_on_prolog_fail,sched_interval=1,bf_interval=1"
    scripts = lines("prolog", "health-check")
    with scripted(
        {NAME: healthy_p5(NAME)}, scripts, 'mode = "drain"\nreuse_s = 0\n', requeued, version=request.param
    ) as running:
        yield running


@needs_slurm
@pytest.mark.parametrize("reason", MISTAKEN)
def test_a_reason_that_is_given_where_slurms_stood_stands_and_the_node_is_not_resumed(
    bed: Scripted, reason: str
) -> None:
    bed.nvml(NAME, LOST.put(healthy_p5(NAME)))
    job = bed.submit(NAME)
    eventually(lambda: log if f"prolog job {job}: drains: " in (log := bed.logged(NAME)) else "")
    bed.bed.output_of("scontrol", "update", f"NodeName={NAME}", "State=DRAIN", f"Reason={reason}")
    bed.bed.run("scancel", job)
    bed.nvml(NAME, healthy_p5(NAME))
    bed.once_more(NAME)
    assert bed.bed.reason(NAME).startswith(f"{reason.partition(chr(10))[0]} [root@")
    assert bed.bed.wait_for(NAME, "IDLE+DRAIN") == "IDLE+DRAIN"
    bed.bed.output_of("scontrol", "update", f"NodeName={NAME}", "State=RESUME")
