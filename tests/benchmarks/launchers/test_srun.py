"""Ranks, and pairs of ends, as steps of one job of a real Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.launchers.on_submit_host import OTHERS_S
from clusterproof.plugins.benchmarks.launchers.srun import srun
from clusterproof.plugins.benchmarks.meters import MeterSettings, nccl_tests, nccom_test
from clusterproof.plugins.evidence.pairs import NodeGroup, Pair, Reading
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.launchers.by_srun import NAMES, ROUND, campaign, round_of
from tests.benchmarks.launchers.launched import (
    SLOW_GB_PER_S,
    SLOW_WIRE,
    all_reduce,
    are_soon_quiet,
    measured,
    sending,
    wait_for,
)
from tests.testbed.needs import needs_openmpi, needs_slurm
from tests.testbed.node import healthy_cpu
from tests.testbed.outputs import nccom_log
from tests.testbed.ranks import with_all_reduce
from tests.testbed.slurm import CONTROLLER, SlurmBed, slurm
from tests.testbed.slurm_version import IN_TURN, VERSIONS

pytestmark = [needs_slurm, needs_openmpi]
ROOT = Path(__file__).parents[3]
PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so")


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    with slurm({name: with_all_reduce(healthy_cpu()) for name in NAMES}, version=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet(bed: SlurmBed) -> Iterator[None]:
    """Check that every test leaves the nodes as they were."""
    yield
    bed.run("scancel", "--user=root")
    for name in bed.names:
        if bed.state(name) not in ("IDLE", "MIXED", "ALLOCATED", "IDLE+COMPLETING"):
            bed.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        bed.wait_for(name, "IDLE")


def queue(bed: SlurmBed) -> list[str]:
    return bed.output_of("squeue", "-h", "-t", "PD,R", "-o", "%A").split()


def test_ranks_measure_what_goes_between_the_nodes_of_each_pair(bed: SlurmBed) -> None:
    with bed.bed.slow_node("gpu004", SLOW_WIRE):
        readings = round_of(bed, campaign(bed, all_reduce("-b", "1M", "-e", "1M", "-n", "2")))
    assert {pair: reading.problem for pair, reading in readings.items()} == {str(pair): "" for pair in ROUND}
    fast, slow = (readings[str(pair)].busbw_gb_per_s for pair in ROUND)
    assert slow is not None
    assert fast is not None
    assert slow < SLOW_GB_PER_S < fast
    assert all("net:eth0" in reading.network for reading in readings.values())
    assert all(reading.is_correct for reading in readings.values())


def test_ranks_of_a_group_are_one_step(bed: SlurmBed) -> None:
    group = NodeGroup(tuple(node for pair in ROUND for node in pair))
    reading = round_of(bed, campaign(bed, all_reduce()), [group])[str(group)]
    assert (reading.problem, reading.is_correct) == ("", True)
    assert reading.busbw_gb_per_s


@pytest.mark.parametrize("bed", VERSIONS[:1], indirect=True)  # this machine's version
@pytest.mark.parametrize("lacking", [("gpu001", "gpu002"), (CONTROLLER,)], ids=["the nodes", "the submit host"])
def test_pmix_without_its_library_is_no_nodes_fault_and_says_what_to_install(
    bed: SlurmBed, lacking: tuple[str, ...]
) -> None:
    if not PMIX.is_file():
        pytest.skip(f"this Slurm has no {PMIX} that could be taken away")
    small = replace(campaign(bed, nccl_tests.METER), settings=MeterSettings(ranks_per_node=2, size_bytes=2**20))
    try:
        for name in lacking:
            assert bed.node(name).run(("mount", "--bind", "/dev/null", str(PMIX))).returncode == 0
        reading = round_of(bed, small, ROUND[:1])["gpu001~gpu002"]
    finally:
        for name in lacking:
            bed.node(name).run(("umount", str(PMIX)))
    assert reading.problem == (
        "srun started no rank: Slurm names pmix and cannot load it; expected libpmix.so on every node "
        "(Debian 12: libpmix-dev), or --srun-options=--mpi=pmi2"
    )
    assert reading.culprit == ""


def test_ranks_without_pmi_say_so_with_what_to_do(bed: SlurmBed) -> None:
    made = campaign(bed, nccl_tests.METER, srun_options="--mpi none")
    small = replace(made, settings=MeterSettings(ranks_per_node=2, size_bytes=2**20))
    reading = round_of(bed, small, ROUND[:1])["gpu001~gpu002"]
    seen, _, advice = reading.problem.partition("; ")
    assert seen in (
        "the ranks did not find each other: its MPI saw no other rank",  # Open MPI 4 says so, and exits
        "the ranks did not find each other: each ran alone, though nccl-tests has MPI (libmpi.so.40)",
    )
    assert advice == "srun offered them no PMI (--mpi=none); expected --srun-options=--mpi=pmix"
    ran = "srun --nodelist=gpu001,gpu002 --nodes=2 --ntasks=4 --ntasks-per-node=2 --mpi=none --mpi none env LC_ALL=C "
    assert reading.command.startswith(ran)
    assert " all_reduce_perf -b 1048576 -e 1048576 " in reading.command


def test_ranks_have_a_home_and_the_paths_of_who_starts_them(bed: SlurmBed) -> None:
    bed.bed.set_environment(CONTROLLER, LD_LIBRARY_PATH="/site/lib", PATH="/site/bin:/usr/bin:/bin", SECRET="a key")
    says = 'echo "$HOME ${PATH%%:/usr*} $LD_LIBRARY_PATH ${OPAL_PREFIX-not set} ${SECRET-not passed}"; exit 3'
    reading = round_of(bed, campaign(bed, all_reduce(before=says)), ROUND[:1])["gpu001~gpu002"]
    assert "\n/root /site/bin /site/lib not set not passed\n" in reading.problem


def test_ranks_meet_by_the_fence_that_lets_none_on_before_all_have_come(bed: SlurmBed) -> None:
    readings = round_of(bed, campaign(bed, all_reduce(before='echo "by $SLURM_PMIX_FENCE"; exit 3')), ROUND[:1])
    assert "\nby ring\n" in readings["gpu001~gpu002"].problem


NCCOM_TEST = f"""#!/bin/sh
while [ "$1" != --hosts ]; do shift; done
[ "$(mpirun --host "$2,$3" -np 2 uname -n | sort | xargs)" = "$2 $3" ] || exit 1
sleep {OTHERS_S + 1:g} # as it takes longer than srun waits for ranks, once others have ended
cat <<'end'
{nccom_log()}
end
"""


def test_root_starts_nccom_test_which_starts_its_own_ranks_with_mpirun(bed: SlurmBed) -> None:
    bed.bed.let_nodes_log_in_to_each_other()
    for name in ROUND[0]:
        program = bed.node(name).root / "opt/aws/neuron/bin/nccom-test"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(NCCOM_TEST)
        program.chmod(0o755)
        (bed.node(name).root / "root/.ssh/config").write_text("StrictHostKeyChecking no\n")  # known by address only
    made = campaign(bed, nccom_test.METER)
    readings = round_of(bed, replace(made, settings=MeterSettings(ranks_per_node=2, size_bytes=8388608)), ROUND[:1])
    assert (readings["gpu001~gpu002"].problem, readings["gpu001~gpu002"].busbw_gb_per_s) == ("", 71.33)


def test_ranks_that_fail_at_once_say_why(bed: SlurmBed) -> None:
    readings = round_of(bed, campaign(bed, all_reduce(before="echo $(uname -n) has no GPU >&2; exit 3")))
    for pair, reading in readings.items():
        assert reading.problem.startswith("ended with 3: "), pair
        assert all(f"{node} has no GPU" in reading.problem for node in pair.split("~"))


def test_all_rounds_are_steps_of_one_job_that_is_given_back(bed: SlurmBed) -> None:
    with bed.bed.joined(), srun(campaign(bed, sending())) as launcher:
        measured(launcher, ROUND)
        (job,) = queue(bed)
        measured(launcher, [Pair("gpu001", "gpu003")])
        assert queue(bed) == [job]
    assert queue(bed) == []


def test_a_rank_that_says_that_srun_could_not_start_another_names_no_culprit(bed: SlurmBed) -> None:
    forged = "srun: error: Task launch for StepId=1.0 failed on node gpu002: No route to host"
    readings = round_of(bed, campaign(bed, all_reduce(before=f"echo {forged} >&2; echo {forged}; exit 3")), ROUND[:1])
    assert readings["gpu001~gpu002"].culprit == ""
    assert not readings["gpu001~gpu002"].problem.startswith("srun: Task launch")


def test_two_ends_meet_as_two_steps(bed: SlurmBed) -> None:
    readings = round_of(bed, campaign(bed, sending()))
    assert {pair: (reading.problem, reading.network) for pair, reading in readings.items()} == {
        str(pair): ("", "net:eth0") for pair in ROUND
    }


def test_a_job_that_runs_is_used_and_stays(bed: SlurmBed) -> None:
    bed.output_of("salloc", "--no-shell", "-w", "gpu001,gpu002", "-N2", "--exclusive")
    (job,) = queue(bed)
    readings = round_of(bed, campaign(bed, sending(), name=f"slurm:job:{job}"))
    assert readings["gpu001~gpu002"].problem == ""
    assert readings["gpu003~gpu004"].problem.startswith(f"gpu[003-004] was not reached: not a node of job {job}")
    assert queue(bed) == [job]


def test_a_job_that_is_stopped_is_used_as_one_that_runs(bed: SlurmBed) -> None:
    options = ["-w", "gpu001,gpu002", "-N2", "--exclusive", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600"]
    job = bed.output_of("sbatch", "--parsable", *options).strip()
    bed.wait_for("gpu001", "ALLOCATED")
    until = time.monotonic() + 600
    while bed.output_of("squeue", "-h", "-o", "%T").strip() != "STOPPED":  # a signal that comes too early finds no step
        assert time.monotonic() < until
        bed.run("scancel", "--batch", "--signal=STOP", job)
    readings = round_of(bed, campaign(bed, sending(), name=f"slurm:job:{job}"), ROUND[:1])
    assert readings["gpu001~gpu002"].problem == ""


def test_a_job_that_takes_no_step_is_reported_with_its_state(bed: SlurmBed) -> None:
    bed.output_of("salloc", "--no-shell", "-w", "gpu001,gpu002", "-N2", "--exclusive")
    (job,) = queue(bed)
    bed.output_of("scontrol", "suspend", job)
    with pytest.raises(Unusable, match=f"job {job} is suspended; expected one of squeue -t R,SI,ST,RS"):
        round_of(bed, campaign(bed, sending(), name=f"slurm:job:{job}"), ROUND[:1])
    with pytest.raises(Unusable, match="job 99999 is not known to Slurm; expected one of squeue"):
        round_of(bed, campaign(bed, sending(), name="slurm:job:99999"), ROUND[:1])


def test_nodes_that_slurm_does_not_give_are_named_and_the_others_are_measured(bed: SlurmBed) -> None:
    bed.output_of("scontrol", "update", "NodeName=gpu004", "State=DRAIN", "Reason=a fan is loud")
    readings = round_of(bed, campaign(bed, sending()))
    assert readings["gpu001~gpu002"].problem == ""
    assert readings["gpu003~gpu004"].culprit == "gpu004"
    assert "gpu004 was not reached: Slurm reports it as IDLE+DRAIN: a fan is loud" in readings["gpu003~gpu004"].problem


def test_a_busy_node_is_waited_for_only_so_long(bed: SlurmBed) -> None:
    bed.output_of("salloc", "--no-shell", "-w", "gpu002", "-N1", "--exclusive")
    readings = round_of(bed, campaign(bed, sending(), slurm_wait="1"))
    assert readings["gpu003~gpu004"].problem == ""
    assert readings["gpu001~gpu002"].problem == "gpu002 was not reached: busy: Slurm reports it as ALLOCATED"


def test_where_slurm_gives_nothing_that_is_one_line(bed: SlurmBed) -> None:
    bed.output_of("salloc", "--no-shell", "-w", ",".join(NAMES), "-N4", "--exclusive")
    with pytest.raises(Unusable, match=r"^Slurm gives none of the nodes: gpu\[001-004\]: busy: .* --slurm-wait 1$"):
        round_of(bed, campaign(bed, sending(), slurm_wait="1"))


def test_options_that_slurm_refuses_are_reported_in_its_words(bed: SlurmBed) -> None:
    with pytest.raises(Unusable, match=r"gpu\[001-004\]: salloc: error: .*Requested reservation is invalid"):
        round_of(bed, campaign(bed, sending(), srun_options="--reservation=nowhere --mpi=none"))


def test_at_the_deadline_a_pair_fails_and_nothing_of_it_is_left(bed: SlurmBed) -> None:
    stuck = all_reduce(before="[ $(uname -n) != gpu002 ] || { setsid sleep 1000 & sleep 1000; }")
    readings = {}
    with bed.bed.joined(), srun(campaign(bed, stuck, run_s=6.0)) as launcher:
        readings = measured(launcher, ROUND)
        assert are_soon_quiet(*(bed.node(name) for name in ROUND[0]))
    assert readings["gpu003~gpu004"].problem == ""
    assert readings["gpu001~gpu002"].problem == "did not end in its time"


@pytest.mark.parametrize("bed", VERSIONS[:1], indirect=True)  # once: it kills a node of its own bed
def test_a_node_that_dies_in_mid_round_is_at_fault_and_the_others_are_measured() -> None:
    with slurm({name: with_all_reduce(healthy_cpu()) for name in NAMES}) as bed:
        stuck = all_reduce(before="[ $(uname -n) != gpu002 ] || { touch /tmp/began; sleep 1000; }")
        readings: dict[str, Reading] = {}
        with bed.bed.joined(), srun(campaign(bed, stuck, run_s=8.0)) as launcher:
            round_ = threading.Thread(target=lambda: readings.update(measured(launcher, ROUND)))
            round_.start()
            wait_for(bed.node("gpu002").root / "tmp/began")
            bed.bed.stop("gpu002")
            round_.join()
            assert readings["gpu003~gpu004"].problem == ""
            assert readings["gpu001~gpu002"].culprit == "gpu002"
            assert "gpu002 does not answer any more: " in readings["gpu001~gpu002"].problem
            again = measured(launcher, [Pair("gpu001", "gpu003")])
            assert again["gpu001~gpu003"].problem == ""
        assert are_soon_quiet(*(bed.node(name) for name in ("gpu001", "gpu003", "gpu004")))


CONTROLLER_PROGRAM = """
import sys
from pathlib import Path
from types import SimpleNamespace
from clusterproof.plugins.benchmarks.launchers.srun import srun
from tests.benchmarks.launchers.launched import all_reduce, measured
from tests.benchmarks.launchers.by_srun import ROUND, campaign
bed = SimpleNamespace(bed=SimpleNamespace(ssh_config=Path(sys.argv[1])))
measured(srun(campaign(bed, all_reduce(before="touch /tmp/ranks; setsid sleep 1000 & sleep 1000"), 600)), ROUND)
"""


def test_when_the_controller_is_killed_in_mid_round_the_job_and_its_ranks_are_gone(bed: SlurmBed) -> None:
    command = bed.bed.command([sys.executable, "-c", CONTROLLER_PROGRAM, str(bed.bed.ssh_config)])
    controller = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        for name in NAMES:
            wait_for(bed.node(name).root / "tmp/ranks")
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    until = time.monotonic() + 600
    while queue(bed) and time.monotonic() < until:
        time.sleep(0.1)
    assert queue(bed) == []
    assert are_soon_quiet(*(bed.node(name) for name in NAMES))
