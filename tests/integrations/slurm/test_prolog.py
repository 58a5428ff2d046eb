"""Slurm's prolog and epilog, end to end: a real Slurm drains real nodes, and says why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import BY_NAME
from tests.integrations.slurm.scripts import DRAIN, SETTINGS, Scripted, eventually, lines, scripted, settings
from tests.testbed.needs import needs_frozen, needs_slurm
from tests.testbed.node import healthy_p5, with_file, with_nvml, with_stuck_nvml
from tests.testbed.slurm_version import IN_TURN

pytestmark = [needs_slurm, needs_frozen]

FAULTS = {
    "gpu001": ("a GPU that is lost", "gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST"),
    "gpu002": ("uncorrected errors in DRAM", "gpu.no_uncorrected_ecc: GPU 1: uncorrected ECC errors: 14 in DRAM"),
    "gpu003": ("an NVLink that is down", "gpu.nvlink_active: GPU 7: NVLink 5 inactive"),
    "gpu004": ("an Xid of the hardware", "gpu.no_xid: Xid 79 (GPU has fallen off the bus) at 0000:53:00.0 (GPU 0"),
    "gpu005": ("an EFA device that no driver holds", "host.device_drivers: "),
}
OBSERVED, SLOW, STUCK, HEALTHY = "gpu006", "gpu007", "gpu008", "gpu009"
NOBODY = 65534
AT_ONCE = 12
REQUEUED = "SchedulerParameters=nohold_on_prolog_fail,defer_batch,sched_interval=1,bf_interval=1"


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    images = {name: BY_NAME[fault].put(healthy_p5(name)) for name, (fault, _) in FAULTS.items()}
    images[OBSERVED] = with_file(images["gpu001"], SETTINGS, settings('mode = "observe"\n'))
    images[SLOW] = with_nvml(healthy_p5(SLOW), slow="init 20")
    images[STUCK] = with_file(
        with_stuck_nvml(healthy_p5(STUCK), gpu=5), SETTINGS, settings('mode = "drain"\ndeadline_s = 5\n')
    )
    images[HEALTHY] = healthy_p5(HEALTHY)
    with scripted(images, lines("prolog", "epilog"), DRAIN, REQUEUED, cpus=64, version=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def jobs(bed: Scripted) -> dict[str, str]:
    """A job for each sick node that may run on the healthy one as well."""
    return {name: bed.submit(name, HEALTHY) for name in FAULTS}


def test_a_job_on_a_healthy_node_starts(bed: Scripted, jobs: dict[str, str]) -> None:
    assert bed.ran_on(bed.submit(HEALTHY)) == HEALTHY
    assert bed.bed.reason(HEALTHY) == ""


@pytest.mark.parametrize("name", FAULTS)
def test_a_node_with_a_fault_drains_with_our_reason_and_the_job_goes_elsewhere(
    bed: Scripted, jobs: dict[str, str], name: str
) -> None:
    assert bed.reason_beginning(name, f"clusterproof: {FAULTS[name][1]}")
    assert bed.ran_on(jobs[name]) == HEALTHY
    assert f"{name}|clusterproof: " in bed.listed()


def test_where_it_observes_nothing_drains_and_the_log_says_what_would_have(bed: Scripted) -> None:
    assert bed.ran_on(bed.submit(OBSERVED)) == OBSERVED
    assert bed.bed.reason(OBSERVED) == ""
    assert "would drain, but only observes: clusterproof: gpu.gpu_answers: GPU 3" in bed.logged(OBSERVED)


def test_a_hung_driver_does_not_hang_the_prolog_and_by_default_drains_nothing(bed: Scripted) -> None:
    assert bed.ran_on(bed.submit(STUCK)) == STUCK
    assert bed.bed.reason(STUCK) == ""
    assert "prolog job " in bed.logged(STUCK)
    assert "incomplete: node.evidence_complete: " in bed.logged(STUCK)


def test_a_hung_driver_drains_where_the_settings_say_so(bed: Scripted) -> None:
    bed.set(STUCK, 'mode = "drain"\ndeadline_s = 5\nat_deadline = "drain"\nreuse_s = 0\n')
    job = bed.submit(STUCK)
    assert bed.reason_beginning(STUCK, "clusterproof: node.evidence_complete: ")
    bed.bed.run("scancel", job)


def test_a_drain_of_an_administrators_keeps_its_reason(bed: Scripted, jobs: dict[str, str]) -> None:
    bed.reason_beginning("gpu005", "clusterproof: ")
    bed.bed.output_of("scontrol", "update", "NodeName=gpu005", "State=RESUME")
    bed.bed.wait_for("gpu005", "IDLE")
    job = bed.submit("gpu005")
    eventually(lambda: bed.logged("gpu005") if f"prolog job {job}: drains: " in bed.logged("gpu005") else "")
    bed.bed.output_of("scontrol", "update", "NodeName=gpu005", "State=DRAIN", "Reason=a fan is loud")
    bed.bed.run("scancel", job)
    assert eventually(lambda: "gone" if not bed.processes("gpu005", "explain") else "")
    assert bed.bed.reason("gpu005").startswith("a fan is loud [root@")


def test_jobs_that_start_at_once_cost_one_probe_at_most(bed: Scripted) -> None:
    assert eventually(lambda: "quiet" if not bed.processes(HEALTHY, "main() ") else "")  # no verdict comes after this
    bed.state_file(HEALTHY, "verdict.json").unlink(missing_ok=True)
    before = bed.probes(HEALTHY, "prolog")
    array = bed.submit(HEALTHY, array=f"1-{AT_ONCE}")
    shown = eventually(
        lambda: (
            text if (text := bed.bed.output_of("scontrol", "show", "job", array)).count("COMPLETED") == AT_ONCE else ""
        )
    )
    assert shown.count(f" NodeList={HEALTHY}") == AT_ONCE
    assert bed.probes(HEALTHY, "prolog") in (before, before + 1)  # none, if a run timed out
    assert bed.bed.reason(HEALTHY) == ""


def test_a_prolog_that_is_killed_half_way_leaves_nothing_behind(bed: Scripted) -> None:
    job = bed.submit(SLOW)
    assert eventually(lambda: running if len((running := bed.processes(SLOW, "main() prolog")).split()) > 2 else "")
    prolog = bed.processes(SLOW, "/etc/slurm/prolog").split()[0]
    bed.node(SLOW).run(["kill", "-9", "--", f"-{prolog}"])  # its process group, as slurmd does
    bed.nvml(SLOW, healthy_p5(SLOW))
    assert eventually(lambda: "gone" if not bed.processes(SLOW, "main() prolog") else "")
    left = {path.name for path in bed.state_file(SLOW, "").iterdir()}
    assert left <= {"cursor.json", "lock", "drain_budget.json"}  # written by the epilog, which Slurm has run meanwhile
    assert bed.reason_beginning(SLOW, "Prolog error")  # Slurm's own reason: a script that is killed has failed
    bed.bed.run("scancel", job)
    bed.bed.output_of("scontrol", "update", f"NodeName={SLOW}", "State=RESUME")
    assert bed.ran_on(bed.submit(SLOW)) == SLOW


def test_what_a_job_has_left_drains_the_node_and_names_the_job(bed: Scripted) -> None:
    left = "setsid sleep 600 >/dev/null 2>&1 &"
    job = bed.submit(HEALTHY, user=NOBODY, script=f"({left})")
    assert bed.reason_beginning(
        HEALTHY, "clusterproof: host.job_leftovers: processes of jobs that no longer run here: sleep (pid "
    )
    assert f" of user {NOBODY}, by its environment of job {job}" in bed.bed.reason(HEALTHY)
