"""Ranks of a real mpirun, started on one node of a pair, over real sshds."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.launchers.by_visits import PairMeasuring
from clusterproof.plugins.benchmarks.launchers.mpirun import launch_by_hand, mpirun, shell_in_pod, start_shell
from clusterproof.plugins.benchmarks.launchers.visit import NodeAnswer, Visitor
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, nccl_tests, nccom_test
from clusterproof.plugins.evidence.pairs import NodeGroup, Pair, Reading
from clusterproof.plugins.suite.gatherer import Gatherer
from clusterproof.plugins.suite.perf.pairs_planning import launcher_for
from clusterproof.plugins.transport import Limits, Unusable, connection_for
from tests.benchmarks.launchers.launched import (
    SLOW_GB_PER_S,
    SLOW_WIRE,
    all_reduce,
    are_soon_quiet,
    cluster_of,
    measured,
    over_ssh,
    sending,
    wait_for,
)
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster, needs_openmpi
from tests.testbed.node import healthy_cpu
from tests.testbed.outputs import nccom_log
from tests.testbed.ranks import with_all_reduce

ROOT = Path(__file__).parents[3]
NAMES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
NCCOM_TEST = f"""#!/bin/sh
while [ "$1" != --hosts ]; do shift; done
shift
hosts=$(echo "$*" | tr ' ' ,)
[ "$(mpirun --host "$hosts" -np 4 uname -n | sort | xargs)" = "gpu-1 gpu-2 gpu-3 gpu-4" ] || exit 1
cat <<'end'
{nccom_log()}
end
"""
ROUND = [Pair("gpu-1", "gpu-2"), Pair("gpu-3", "gpu-4")]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with cluster() as running:
        yield running


def cluster() -> AbstractContextManager[Testbed]:
    return testbed(dict.fromkeys(NAMES, with_all_reduce(healthy_cpu())))


@pytest.fixture(scope="module")
def strangers() -> Iterator[Testbed]:
    """A cluster whose nodes do not let each other in."""
    with cluster() as running:
        yield running


@pytest.fixture
def joined(bed: Testbed) -> Iterator[Testbed]:
    """A cluster whose nodes may log in to each other."""
    bed.let_nodes_log_in_to_each_other()
    with bed.joined():
        yield bed


@needs_cluster
@needs_openmpi
class TestByMpirun:
    def test_nodes_that_do_not_let_each_other_in_are_reported_with_what_to_do(self, strangers: Testbed) -> None:
        with strangers.joined(), mpirun(over_ssh(strangers, all_reduce())) as launcher:
            reading = measured(launcher, ROUND[:1])["gpu-1~gpu-2"]
        assert reading.problem.startswith("gpu-1 does not reach gpu-2 over ssh: ")
        assert "expected that one may log in from node to node without being asked" in reading.problem
        assert reading.culprit == ""

    def test_ranks_measure_what_goes_between_the_nodes_of_each_pair(self, joined: Testbed) -> None:
        with (
            joined.slow_node("gpu-3", SLOW_WIRE),
            mpirun(over_ssh(joined, all_reduce("-b", "1M", "-e", "1M", "-n", "2", "-w", "1"))) as runs,
        ):
            readings = measured(runs, ROUND)
        assert {pair: reading.problem for pair, reading in readings.items()} == {str(pair): "" for pair in ROUND}
        fast, slow = (readings[str(pair)].busbw_gb_per_s for pair in ROUND)
        assert slow is not None
        assert fast is not None
        assert slow < SLOW_GB_PER_S < fast
        assert {reading.network for reading in readings.values()} == {"net:eth0"}

    def test_ranks_of_a_group_are_one_job_though_none_but_the_first_node_may_log_in(self, joined: Testbed) -> None:
        for name in NAMES[1:]:
            (joined.nodes[name].root / "root/.ssh/id_ed25519").unlink()
        group = NodeGroup(NAMES)
        with mpirun(over_ssh(joined, all_reduce())) as launcher:
            reading = measured(launcher, [group])[str(group)]
        assert reading.problem == ""
        assert reading.is_correct
        assert reading.busbw_gb_per_s

    def test_nccom_test_is_told_all_nodes_by_names_that_lead_there(self, joined: Testbed) -> None:
        for name in NAMES:
            program = joined.nodes[name].root / "opt/aws/neuron/bin/nccom-test"
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(NCCOM_TEST)
            program.chmod(0o755)
        settings = MeterSettings(ranks_per_node=2, size_bytes=8388608)
        with mpirun(over_ssh(joined, nccom_test.METER, settings=settings)) as launcher:
            reading = measured(launcher, [NodeGroup(NAMES)])["gpu-[1-4]"]
        assert (reading.problem, reading.busbw_gb_per_s) == ("", 71.33)

    def test_the_nodes_of_a_group_that_are_not_reached_are_counted(self, strangers: Testbed) -> None:
        with strangers.joined(), mpirun(over_ssh(strangers, all_reduce())) as launcher:
            reading = measured(launcher, [NodeGroup(NAMES)])["gpu-[1-4]"]
        assert reading.problem.startswith("gpu-1 does not reach gpu-2 and 2 more nodes over ssh: ")

    def test_at_the_deadline_a_pair_fails_and_nothing_of_it_is_left(self, joined: Testbed) -> None:
        stuck = all_reduce(before="[ $(uname -n) != gpu-2 ] || { setsid sleep 1000 & sleep 1000; }")
        with mpirun(over_ssh(joined, stuck, run_s=6.0)) as launcher:
            readings = measured(launcher, ROUND)
            assert are_soon_quiet(*joined.nodes.values())
        assert readings["gpu-3~gpu-4"].problem == ""
        assert readings["gpu-1~gpu-2"].problem == "did not end in its time"

    @pytest.mark.parametrize("victim", ["gpu-1", "gpu-2"])
    def test_a_node_that_dies_in_mid_round_is_at_fault_and_the_others_are_measured(
        self, victim: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("clusterproof.plugins.benchmarks.launchers.mpirun.ENDS_S", 5.0)
        stuck = all_reduce(before="[ $(uname -n) != gpu-2 ] || { touch /tmp/began; sleep 1000; }")
        readings: dict[str, Reading] = {}
        with cluster() as bed:
            bed.let_nodes_log_in_to_each_other()
            with bed.joined(), mpirun(over_ssh(bed, stuck, run_s=20.0)) as launcher:
                round_ = threading.Thread(target=lambda: readings.update(measured(launcher, ROUND)))
                round_.start()
                wait_for(bed.nodes["gpu-2"].root / "tmp/began")
                bed.stop(victim)
                round_.join()
            assert readings["gpu-3~gpu-4"].problem == ""
            assert readings["gpu-1~gpu-2"].culprit == victim
            assert are_soon_quiet(*(node for name, node in bed.nodes.items() if name != victim))

    def test_when_the_controller_is_killed_in_mid_round_nothing_is_left_on_either_node(self, joined: Testbed) -> None:
        command = joined.command([sys.executable, "-c", CONTROLLER, str(joined.ssh_config)])
        controller = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            for name in NAMES:
                wait_for(joined.nodes[name].root / "tmp/ranks")
        finally:
            controller.send_signal(signal.SIGKILL)
            controller.wait()
        assert are_soon_quiet(*joined.nodes.values())


CONTROLLER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from clusterproof.plugins.benchmarks.launchers.mpirun import mpirun
from clusterproof.plugins.evidence.pairs import Pair
from tests.benchmarks.launchers.launched import all_reduce, measured, over_ssh
names = [f"gpu-{number}" for number in range(1, 5)]
bed = SimpleNamespace(addresses=dict.fromkeys(names, ""), ssh_config=Path(sys.argv[1]))
meter = all_reduce(before="touch /tmp/ranks; sleep 1000")
measured(mpirun(over_ssh(bed, meter, 600)), [Pair(*names[:2]), Pair(*names[2:])])
"""


@pytest.mark.parametrize(
    ("settings", "meter", "expected"),
    [
        ({"submit_host": "local"}, all_reduce(), "BySrun"),
        ({"submit_host": "ssh:login1"}, sending(), "BySrun"),
        ({}, all_reduce(), "by_mpirun"),
        ({}, sending(), "measured_by_visits"),
    ],
    ids=["ranks with Slurm", "two ends with Slurm", "ranks", "two ends"],
)
def test_the_launcher_that_fits(settings: dict[str, str], meter: Meter, expected: str) -> None:
    launcher = launcher_for(MeterCampaign(meter, MeterSettings(), cluster_of({}, "ssh", **settings), Limits()))
    assert expected in (type(launcher).__name__, getattr(getattr(launcher, "take", None), "__name__", ""))


def test_a_person_starts_ranks_as_the_launcher_does() -> None:
    options = Limits(settings={"mpirun_options": "--mca btl 'tcp,self'"})
    made = MeterCampaign(
        nccl_tests.METER, MeterSettings(ranks_per_node=8), cluster_of({"a": "", "b": ""}, "ssh"), options
    )
    assert launch_by_hand(made, ("a", "b")) == "mpirun --host a:8,b:8 -np 16 --bind-to none --mca btl tcp,self"


def test_the_command_for_a_thousand_nodes_is_one_argument() -> None:
    names = [f"i-0{number:016x}" for number in range(1000)]
    made = MeterCampaign(
        all_reduce(), MeterSettings(ranks_per_node=8), cluster_of(dict.fromkeys(names, ""), "ssh"), Limits()
    )
    where = {
        name: NodeAnswer(
            name=f"ip-10-231-{number % 256}-{number // 256}.us-west-2.compute.internal",
            addresses=tuple(f"10.231.{card}.{number % 256}" for card in range(200, 232)),
        )
        for number, name in enumerate(names)
    }
    visit = PairMeasuring(made, Visitor(connection_for("ssh"), made.limits), NodeGroup(tuple(names)), "run1", where)
    assert len(start_shell(visit)) < 128 * 1024
    assert len(shell_in_pod(visit, " ".join(where[name].addresses[0] for name in names[:-1]), 20_001)) < 128 * 1024


def test_in_pods_nccom_test_is_started_alone_and_told_all_nodes(tmp_path: Path) -> None:
    programs = {"mpirun": "exit 99", "nccom-test": 'echo "$OMPI_MCA_plm_rsh_agent" >&2; echo "$CLUSTERPROOF_PEER" >&2'}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    settings = MeterSettings(ranks_per_node=2, program=str(tmp_path / "nccom-test"))
    nodes, where = ("a", "b", "c"), {name: NodeAnswer(name=f"{name}-host") for name in "abc"}
    made = MeterCampaign(nccom_test.METER, settings, cluster_of(dict.fromkeys(nodes, ""), "kubernetes"), Limits())
    visit = PairMeasuring(made, Visitor(connection_for("ssh"), made.limits), NodeGroup(nodes), "run1", where)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CLUSTERPROOF_PYTHON": "/usr/bin/python3"}
    command = ["/bin/sh", "-c", shell_in_pod(visit, "10.0.0.1 10.0.0.2", 20_001)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "nccom-test -r 6 -N 3 " in ran.stdout
    assert f"--hosts {os.uname().nodename} a-host b-host" in ran.stdout
    agent, peers = ran.stderr.splitlines()[:2]
    assert agent.startswith("/usr/bin/python3 -I -c ")
    assert peers.split() == ["a-host=10.0.0.1:20001", "b-host=10.0.0.2:20001"]


def test_further_options_reach_mpirun_word_by_word(pytester: pytest.Pytester) -> None:
    nodes = cluster_of(dict.fromkeys(NAMES, ""), "ssh")
    arguments = ["-p", "clusterproof.plugins.cluster", "--mpirun-options", "--mca btl_tcp_if_include 'eth 0'"]
    campaign = MeterCampaign(
        all_reduce(), MeterSettings(), nodes, Gatherer(pytester.parseconfig(*arguments), nodes).limits()
    )
    where = {name: NodeAnswer(name=name) for name in NAMES}
    shell = start_shell(
        PairMeasuring(campaign, Visitor(connection_for("ssh"), campaign.limits), ROUND[0], "run1", where)
    )
    (arguments,) = (shlex.split(line) for line in shell.splitlines() if line.startswith("set -- "))
    assert arguments[-3:] == ["--mca", "btl_tcp_if_include", "eth 0"]


@pytest.mark.parametrize(
    ("name", "meter", "message"),
    [
        ("pdsh", sending(), "no launcher is called 'pdsh'; expected srun, mpirun, ssh, pods"),
        ("mpirun", sending(), "sending has two ends; expected the launcher ssh or srun for it, and not mpirun"),
        ("ssh", all_reduce(), "all_reduce needs ranks; expected the launcher mpirun or srun for it, and not ssh"),
    ],
)
def test_a_launcher_that_does_not_fit_is_refused_with_those_that_do(name: str, meter: Meter, message: str) -> None:
    with pytest.raises(Unusable) as refused:
        launcher_for(MeterCampaign(meter, MeterSettings(), cluster_of({}, "ssh"), Limits()), name)
    assert str(refused.value) == message
