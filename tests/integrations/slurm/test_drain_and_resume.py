"""Prolog, epilog and health check on a real Slurm: they resume what they drained, and no sick node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from clusterproof.integrations.slurm.drains import EXPLAIN_S, FOLDER
from clusterproof.integrations.slurm.folder import since_boot_s
from clusterproof.integrations.slurm.state import RUNTIME_FOLDER
from tests.faults import BY_NAME
from tests.integrations.slurm.scripts import DRAIN_ANEW, Scripted, eventually, lines, scripted
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5, with_tmpfs
from tests.testbed.slurm_version import VERSIONS

pytestmark = needs_slurm

LITTERED, SICK, FULL = "gpu001", "gpu002", "gpu003"
LOST = "a GPU that is lost"
NOBODY = 65534
COLLECTORS = "(setsid sleep 600 >/dev/null 2>&1 &); sleep 601"


@pytest.fixture(scope="module", params=VERSIONS)
def bed(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Three nodes whose health check runs when a test says so; one has little space for the scripts' state."""
    full = with_tmpfs(healthy_p5(FULL), "/var/lib/clusterproof", "64k")
    requeued = "SchedulerParameters=nohold_on_prolog_fail,sched_interval=1,bf_interval=1"
    every = lines("prolog", "epilog", "health-check")
    images = {LITTERED: healthy_p5(LITTERED), SICK: healthy_p5(SICK), FULL: full}
    with scripted(images, every, DRAIN_ANEW, requeued, version=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def second_job(bed: Scripted) -> str:
    """The job that a prolog kept off SICK, which was drained together with LITTERED."""
    littering, first = running_job(bed, LITTERED), running_job(bed, SICK)
    bed.nvml(SICK, BY_NAME[LOST].put(healthy_p5()))
    second = bed.submit(SICK)
    bed.bed.run("scancel", littering, first)
    assert is_explained(bed, LITTERED, "host.job_leftovers: ")
    assert is_explained(bed, SICK, "")
    return second


def running_job(bed: Scripted, name: str) -> str:
    """A running job whose shell has left a process behind."""
    job = bed.submit(name, user=NOBODY, script=COLLECTORS)
    assert eventually(lambda: bed.processes(name, "sleep 601"))
    return job


def left_over_is_killed(bed: Scripted, name: str) -> None:
    for number in bed.processes(name, "sleep 600").split():
        bed.node(name).run(["kill", "-9", number])
    assert eventually(lambda: "" if bed.processes(name, "sleep 600") else "gone")


def is_explained(bed: Scripted, name: str, reason: str) -> bool:
    """Wait until the node is drained with the final reason, and nobody is about to change it."""
    bed.reason_beginning(name, f"clusterproof: {reason}")

    def quiet() -> str:
        age_drains(bed, name)
        return "" if bed.processes(name, "main() ") else "quiet"

    return bool(eventually(quiet))


def age_drains(bed: Scripted, name: str) -> None:
    """Backdate the node's records of its drains, as if they had been followed for a minute."""
    folders = (bed.state_file(name, FOLDER), bed.node(name).root / RUNTIME_FOLDER[1:] / FOLDER)
    files = [file for folder in folders for file in folder.glob("*.json")]
    records = [json.loads(file.read_text()) for file in files]
    if any(record["is_claim"] for record in records) or not any(record["is_reported"] for record in records):
        return  # the follower has yet to write to them
    for file, record in zip(files, records, strict=True):
        if since_boot_s() - record["at"] < EXPLAIN_S:
            aged = file.with_suffix(".aged")
            aged.write_text(json.dumps({**record, "at": record["at"] - EXPLAIN_S}))
            aged.chmod(0o600)
            aged.replace(file)


@pytest.mark.usefixtures("second_job")
def test_what_a_job_left_is_evaluated_as_after_a_job_before_its_node_is_resumed(bed: Scripted) -> None:
    assert "stays drained: 1 fail, 0 incomplete" in bed.once_more(LITTERED)
    assert "DRAIN" in bed.bed.state(LITTERED)
    left_over_is_killed(bed, LITTERED)
    bed.once_more(LITTERED)
    assert bed.bed.wait_for(LITTERED, "IDLE") == "IDLE"


def test_a_node_that_a_prolog_and_an_epilog_drain_together_is_resumed_once_it_is_healthy(
    bed: Scripted, second_job: str
) -> None:
    bed.bed.run("scancel", second_job)
    assert eventually(lambda: "" if bed.bed.output_of("squeue", "-h") else "empty")
    left_over_is_killed(bed, SICK)
    assert "stays drained: " in bed.once_more(SICK)
    bed.nvml(SICK, healthy_p5())
    bed.once_more(SICK)
    assert bed.bed.wait_for(SICK, "IDLE") == "IDLE"


def test_what_a_job_left_whose_epilog_came_to_no_verdict_drains_at_the_next_health_check(bed: Scripted) -> None:
    job = running_job(bed, LITTERED)
    node, lock = bed.node(LITTERED), f"{RUNTIME_FOLDER}/lock"
    others = node.start(["flock", lock, "sleep", "600"])
    assert eventually(lambda: "held" if node.run(["flock", "--nonblock", lock, "true"]).returncode else "")
    bed.bed.run("scancel", job)
    assert eventually(lambda: no_verdict if (no_verdict := "epilog: no verdict: ") in bed.logged(LITTERED) else "")
    node.kill(others)
    assert bed.bed.wait_for(LITTERED, "IDLE") == "IDLE"
    bed.once_more(LITTERED)
    assert is_explained(bed, LITTERED, "host.job_leftovers: ")
    assert "stays drained: 1 fail, 0 incomplete" in bed.once_more(LITTERED)
    left_over_is_killed(bed, LITTERED)
    bed.once_more(LITTERED)
    assert bed.bed.wait_for(LITTERED, "IDLE") == "IDLE"


def test_a_node_that_was_drained_and_resumed_is_drained_for_a_reason_of_its_own(bed: Scripted) -> None:
    before = bed.bed.reason(SICK)
    bed.nvml(SICK, BY_NAME["uncorrected errors in DRAM"].put(healthy_p5()))
    job = bed.submit(SICK)
    assert is_explained(bed, SICK, "gpu.no_uncorrected_ecc: ")
    assert bed.bed.reason(SICK) != before
    bed.bed.run("scancel", job)
    bed.nvml(SICK, healthy_p5())
    bed.once_more(SICK)
    assert bed.bed.wait_for(SICK, "IDLE") == "IDLE"


def test_a_sick_node_whose_disk_is_full_is_drained_and_once_it_is_healthy_resumed(bed: Scripted) -> None:
    bed.once_more(FULL)
    bed.node(FULL).run(["/bin/sh", "-c", "cat /dev/zero >/var/lib/clusterproof/full"])
    bed.nvml(FULL, BY_NAME[LOST].put(healthy_p5()))
    job = bed.submit(FULL)
    assert bed.reason_beginning(FULL, "clusterproof: gpu.gpu_answers: ")
    bed.bed.run("scancel", job)
    assert "No space left on device" in bed.logged(FULL)
    bed.node(FULL).run(["rm", "/var/lib/clusterproof/full"])
    bed.nvml(FULL, healthy_p5())
    bed.once_more(FULL)
    assert bed.bed.wait_for(FULL, "IDLE") == "IDLE"
