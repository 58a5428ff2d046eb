"""`--cluster slurm:…` over a real Slurm: the nodes it selects, and the single srun that visits them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results
from tests.builders.evaluated import probed, results
from tests.builders.runs import WITHOUT_HYPOTHESIS
from tests.faults import BY_NAME
from tests.testbed.image import File, NodeImage
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm import CONTROLLER, START_S, SlurmBed, slurm
from tests.testbed.slurm_version import IN_TURN

pytestmark = needs_slurm
ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *WITHOUT_HYPOTHESIS.split(), "--no-report"]
SICK = {"gpu002": "uncorrected errors in DRAM", "gpu003": "a GPU that is lost"}
UBUNTU = 1000
CLAIMED = "/run/claimed"  # a node with this file calls itself by its content
TASK = File(f"#!/bin/sh\n[ ! -f {CLAIMED} ] || echo export SLURMD_NODENAME=$(cat {CLAIMED})\n", 0o755)


def images() -> dict[str, NodeImage]:
    """A healthy node and two with a fault each."""
    healthy = {name: healthy_p5(name) for name in ("gpu001", "gpu002", "gpu003")}
    return {name: BY_NAME[SICK[name]].put(image) if name in SICK else image for name, image in healthy.items()}


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    task = {"/etc/slurm/task.sh": TASK}
    with slurm(images(), settings=["TaskProlog=/etc/slurm/task.sh"], files=task, version=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet(bed: SlurmBed) -> Iterator[None]:
    """Check that every test leaves the nodes as they were."""
    yield
    bed.run("scancel", "--user=ubuntu")
    bed.run("scancel", "--user=root")
    for name in bed.names:
        if bed.state(name) not in ("IDLE", "MIXED", "ALLOCATED", "IDLE+COMPLETING"):
            bed.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        bed.wait_for(name, "IDLE")


class Ran:
    """A run of the suite on the controller: output, exit code, results."""

    def __init__(
        self, bed: SlurmBed, arguments: tuple[str, ...], user: int, environment: Mapping[str, str] = {}
    ) -> None:
        written = f"/tmp/results-{time.monotonic_ns()}.jsonl"
        command = [*PYTEST, f"--rootdir={ROOT}", str(ROOT / "checks")]
        done = bed.controller.run(
            [*command, "--results", written, *arguments], user=user, timeout=600, env={"HOME": "/tmp", **environment}
        )
        self.words = (done.stdout + done.stderr).decode()
        self.code = done.returncode
        file = bed.controller.root / written.lstrip("/")
        self.results = read_results(file) if file.exists() else []

    def verdicts(self, node: str) -> dict[str, str]:
        return {result.check: result.verdict.value for result in self.results if result.node == node}

    def message(self, node: str, check: str) -> str:
        return next(result.message for result in self.results if (result.node, result.check) == (node, check))


def ran(bed: SlurmBed, *arguments: str, user: int = 0, **environment: str) -> Ran:
    return Ran(bed, arguments, user, environment)


def verdicts(of_run: Iterable[Result]) -> dict[tuple[str, str], Verdict]:
    """Each node's and check's verdict; the cluster as a whole has a fixed name."""
    return {("" if result.is_of_cluster else result.node, result.check): result.verdict for result in of_run}


def next_job(bed: SlurmBed) -> int:
    """The number that Slurm gives to the next job."""
    config = bed.output_of("scontrol", "show", "config")
    return int(next(line.split("=")[1] for line in config.splitlines() if line.startswith("NEXT_JOB_ID")))


def busy(bed: SlurmBed, name: str, user: int) -> subprocess.Popen[bytes]:
    """Allocate a whole node to somebody, for a while."""
    job = bed.controller.start(["srun", "-w", name, "-n4", "--gres=gpu:8", "sleep", "120"], user=user)
    bed.wait_for(name, "ALLOCATED")
    return job


def stop(bed: SlurmBed, job: int) -> None:
    """Stop a job: it only counts once its tasks, which start later, have got the signal. Raises TimeoutError."""
    until = time.monotonic() + START_S
    while bed.output_of("squeue", "-h", "-j", str(job), "-o", "%T").strip() != "STOPPED":
        if time.monotonic() > until:
            raise TimeoutError(bed.output_of("scontrol", "show", "job", str(job)))
        bed.output_of("scancel", "--signal=STOP", str(job))
        time.sleep(0.1)


def test_a_partition_gives_the_verdicts_of_a_direct_probe_with_one_srun(bed: SlurmBed) -> None:
    before = next_job(bed)
    run = ran(bed, "--cluster", "slurm:gpu", "-m", "prolog")
    direct = {name: probed(image, name) for name, image in images().items()}
    for name, evidence in direct.items():
        expected = {
            check: result.verdict.value
            for check, result in results(evidence, peers=list(direct.values()), group="gpu").items()
        }
        by_check = run.verdicts(name)
        assert by_check == {check: expected[check] for check in by_check}, name
        assert len(by_check) > 50
    assert run.code == 1
    assert next_job(bed) == before + 1
    assert "cluster: slurm:gpu: 3 nodes (gpu[001-003]) by srun" in run.words


@pytest.mark.parametrize("characters", [80_000, 300_000, 910_000])
def test_a_program_longer_than_an_argument_reaches_every_node_with_one_srun(bed: SlurmBed, characters: int) -> None:
    before = next_job(bed)
    command = [sys.executable, "-m", "tests.transport.long_program", str(characters), *bed.names]
    done = bed.controller.run(command, timeout=600, env={"PYTHONPATH": str(ROOT)})
    assert json.loads(done.stdout or b"{}") == dict.fromkeys(bed.names, characters), done.stderr
    assert next_job(bed) == before + 1


def test_srun_and_ssh_give_the_same_verdicts(bed: SlurmBed, tmp_path: Path) -> None:
    every = ("-m", "preflight and not control_plane", "--instance-type", "p5.48xlarge")
    by_srun = ran(bed, "--cluster", "slurm:gpu", *every)
    written = tmp_path / "by_ssh.jsonl"
    command = [*PYTEST, f"--rootdir={ROOT}", str(ROOT / "checks")]
    done = bed.bed.run([*command, "--cluster", "ssh:gpu[001-003]", "--results", str(written), *every])
    assert done.returncode == 1, done.stdout.decode()
    by_ssh = verdicts(read_results(written))
    assert by_ssh == verdicts(by_srun.results)
    assert len(by_ssh) > 3 * 90


@pytest.mark.parametrize(
    ("cluster", "data"),
    [
        ("slurm:", "slurm:gpu: 3 nodes (gpu[001-003])"),
        ("slurm:gpu[001,003]", "slurm:gpu[001,003]: 2 nodes (gpu[001,003])"),
        ("slurm:gpu002", "slurm:gpu002: 1 node (gpu002)"),
        ("slurm:nosuch", "'slurm:nosuch' is neither a partition nor a node; expected one of gpu"),
        ("slurm:gp", "'slurm:gp' is neither a partition nor a node (did you mean gpu?)"),
        ("slurm:gpu[003-005]", "Slurm knows no gpu[004-005]; expected some of gpu[001-003]"),
        ("slurm:gpu[1-", "'slurm:gpu[1-'"),
        ("slurm:job:777", "job '777' does not run; expected one of squeue -t R,SI,ST,RS"),
    ],
)
def test_what_may_stand_behind_the_colon(bed: SlurmBed, cluster: str, data: str) -> None:
    assert data in ran(bed, "--cluster", cluster, "--collect-only", "-m", "node and prolog").words


def test_a_drained_node_is_named_and_not_visited(bed: SlurmBed) -> None:
    bed.output_of("scontrol", "update", "NodeName=gpu003", "State=DRAIN", "Reason=the fan is loud")
    run = ran(bed, "--cluster", "slurm:gpu", "-m", "node and prolog")
    assert "cluster: not validated: gpu003 (IDLE+DRAIN: the fan is loud)" in run.words
    assert {result.node for result in run.results} == {"gpu001", "gpu002"}
    assert run.code == 0


def test_a_drained_node_is_visited_over_ssh_where_that_is_asked_for(bed: SlurmBed) -> None:
    bed.output_of("scontrol", "update", "NodeName=gpu003", "State=DRAIN", "Reason=the fan is loud")
    run = ran(bed, "--cluster", "slurm:gpu", "-m", "node and prolog", "--include-drained")
    assert "host key: unknown host key" in run.message("gpu003", "node.reachable")  # there, nobody knows it
    assert run.verdicts("gpu001")["node.reachable"] == Verdict.PASS.value


def test_inside_a_job_its_own_nodes_are_visited_in_it(bed: SlurmBed) -> None:
    command = [*PYTEST, f"--rootdir={ROOT}", str(ROOT / "checks")]
    command += ["--cluster", "slurm:", "-m", "node and prolog"]
    done = bed.run("salloc", "-N2", "-n8", "-w", "gpu001,gpu002", *command, user=UBUNTU)
    output = (done.stdout + done.stderr).decode()
    assert "slurm:job:" in output
    assert "2 nodes (gpu[001-002]) by srun" in output
    assert done.returncode == 0, output


def test_a_node_that_another_user_has_whole_is_incomplete_and_holds_up_nobody(bed: SlurmBed) -> None:
    busy(bed, "gpu002", UBUNTU)
    run = ran(bed, "--cluster", "slurm:gpu", "-m", "node and prolog", "--slurm-wait", "5")
    assert run.verdicts("gpu002")["node.reachable"] == Verdict.INCOMPLETE.value
    assert "busy: no place within 5 s: Resources; expected a place" in run.message("gpu002", "node.reachable")
    assert run.verdicts("gpu001")["node.reachable"] == Verdict.PASS.value
    assert run.code == 10


@pytest.mark.parametrize("environment", [{}, {"SQUEUE_PARTITION": "other"}], ids=["", "though he lists other jobs"])
def test_a_node_that_is_ones_own_whole_is_visited_inside_the_job(bed: SlurmBed, environment: dict[str, str]) -> None:
    busy(bed, "gpu001", UBUNTU)
    arguments = ("--cluster", "slurm:gpu[001,003]", "-m", "node and prolog", "--slurm-wait", "5")
    run = ran(bed, *arguments, user=UBUNTU, **environment)
    assert run.verdicts("gpu001")["node.reachable"] == Verdict.PASS.value
    assert run.code == 0


def test_a_job_of_ones_own_that_is_stopped_takes_steps_as_one_that_runs(bed: SlurmBed) -> None:
    number = next_job(bed)
    busy(bed, "gpu001", UBUNTU)
    stop(bed, number)
    run = ran(bed, "--cluster", "slurm:gpu[001,003]", "-m", "node and prolog", "--slurm-wait", "5", user=UBUNTU)
    assert bed.output_of("squeue", "-h", "-o", "%T").strip() == "STOPPED"
    assert run.verdicts("gpu001")["node.reachable"] == Verdict.PASS.value, run.words


def test_a_job_that_takes_no_step_is_refused_by_its_state(bed: SlurmBed) -> None:
    number = next_job(bed)
    busy(bed, "gpu001", UBUNTU)
    bed.output_of("scontrol", "suspend", str(number))
    run = ran(bed, "--cluster", f"slurm:job:{number}", "--collect-only", "-m", "node and prolog")
    assert f"job '{number}' is suspended; expected one of squeue -t R,SI,ST,RS" in run.words


def test_a_node_that_calls_itself_as_another_takes_nothing_from_it(bed: SlurmBed) -> None:
    claimed = bed.node("gpu003").root / CLAIMED.lstrip("/")
    claimed.write_text("gpu001")
    try:
        run = ran(
            bed, "--cluster", "slurm:gpu", "-m", "prolog", "-k", "test_reachable or (no_uncorrected_ecc and not neuron)"
        )
    finally:
        claimed.unlink()
    assert run.verdicts("gpu001") == {"node.reachable": "pass", "gpu.no_uncorrected_ecc": "pass"}
    assert run.verdicts("gpu003")["node.reachable"] == "fail"
    assert "it answered as gpu001, and srun has it as gpu003" in run.message("gpu003", "node.reachable")


def test_nothing_is_left_in_the_queue(bed: SlurmBed) -> None:
    busy(bed, "gpu002", UBUNTU)
    ran(bed, "--cluster", "slurm:gpu", "-m", "node and prolog", "--slurm-wait", "1")
    assert bed.output_of("squeue", "-h", "-u", "root", "-t", "PD,R").strip() == ""


def test_a_node_whose_slurmd_is_gone_is_reported_in_slurms_words(bed: SlurmBed) -> None:
    bed.node("gpu001").run(["pkill", "-KILL", "-x", "slurmd"])
    try:
        run = ran(bed, "--cluster", "slurm:gpu", "-m", "node and prolog")
    finally:
        bed.start_slurmd("gpu001")
    assert "lost: srun: Communication connection failure" in run.message("gpu001", "node.reachable")
    assert run.verdicts("gpu002")["node.reachable"] == Verdict.PASS.value


def test_from_elsewhere_the_log_in_node_starts_the_srun(bed: SlurmBed) -> None:
    command = [*PYTEST, f"--rootdir={ROOT}", str(ROOT / "checks")]
    before = next_job(bed)
    done = bed.bed.run([*command, "--cluster", "slurm:gpu", "--via", f"ssh:{CONTROLLER}", "-m", "node and prolog"])
    assert done.returncode == 0, done.stdout.decode()
    assert b"cluster: slurm:gpu: 3 nodes (gpu[001-003]) by srun" in done.stdout
    assert next_job(bed) == before + 1


def test_a_log_in_node_that_is_not_reached_is_one_line(bed: SlurmBed) -> None:
    command = [*PYTEST, f"--rootdir={ROOT}", str(ROOT / "checks")]
    done = bed.bed.run([*command, "--cluster", "slurm:gpu", "--via", "ssh:nowhere.invalid"])
    assert done.returncode == 4
    assert b"slurm: could not be read (nowhere.invalid: name: nowhere.invalid does not resolve" in (
        done.stdout + done.stderr
    )


def test_a_recording_gives_the_same_verdicts_and_a_redacted_one_has_no_names(bed: SlurmBed) -> None:
    live = ran(bed, "--cluster", "slurm:gpu", "--record", "/tmp/live", "-m", "preflight")
    again = ran(bed, "--cluster", "replay:/tmp/live", "-m", "preflight", "-n2")
    assert again.results
    for name in (*bed.names, "slurm:gpu"):
        assert again.verdicts(name) == live.verdicts(name), name
    assert "control_plane.slurm_gres" in live.verdicts("slurm:gpu")
    ran(bed, "--cluster", "slurm:gpu", "--record", "/tmp/redacted", "--redact", "-m", "preflight")
    written = [path.read_text() for path in (bed.controller.root / "tmp/redacted").rglob("*.json")]
    assert len(written) == 5
    assert not [text for text in written if "gpu001" in text or f'"{CONTROLLER}"' in text]


def test_a_host_without_slurm_says_so(tmp_path: Path) -> None:
    command = [*PYTEST, f"--rootdir={ROOT}", str(ROOT / "checks")]
    done = subprocess.run(
        [*command, "--cluster", "slurm:gpu"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "--cluster 'slurm:gpu': slurm:" in done.stderr
    assert "expected a host where scontrol works (--via ssh:HOST for another)" in done.stderr
    assert "Traceback" not in done.stderr
