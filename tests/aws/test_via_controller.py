"""`--via`: a HyperPod cluster through one session to its controller, where one srun starts the probe on all nodes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import InventoryError, resolve
from clusterproof.reports.results import read_results
from tests.aws.clusters import ID, NAME, instance_id, private_name, with_cluster
from tests.aws.service import Service
from tests.aws.systems_manager import PLUGINS, SystemsManager
from tests.faults import BY_NAME
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm import CONTROLLER, SlurmBed, slurm

ROOT = Path(__file__).parents[2]
GROUPS = {"workers": ("ml.p5.48xlarge", 3), "controller-machine": ("ml.c5.xlarge", 1)}
ADDRESS = f"sagemaker-cluster:{ID}_controller-machine-{instance_id('controller-machine-0')}"


def options(**more: str) -> dict[str, str]:
    return {"region": "us-west-2", **more}


@pytest.mark.parametrize(
    ("via", "workers", "connection"),
    [
        ("auto", 32, "hyperpod"),
        ("auto", 33, "srun"),
        ("controller", 1, "srun"),
        ("nodes", 33, "hyperpod"),
    ],
)
def test_above_32_nodes_one_session_to_the_controller_is_enough(
    service: Service, via: str, workers: int, connection: str
) -> None:
    with_cluster(service, {**GROUPS, "workers": ("ml.p5.48xlarge", workers)})
    cluster = resolve(NAME, options(via=via))
    assert (cluster.connection, len(cluster.targets)) == (connection, workers)
    assert cluster.settings["submit_host"] == f"hyperpod:{ADDRESS}"


def test_of_several_controllers_one_that_runs_is_asked(service: Service) -> None:
    with_cluster(service, {**GROUPS, "controller-machine": ("ml.c5.xlarge", 2)})
    listed = service.served["ListClusterNodes"]

    def first_failed(request: dict[str, Any]) -> dict[str, Any]:
        page: Any = listed(request)
        for node in page["ClusterNodeSummaries"]:
            if node["InstanceId"] == instance_id("controller-machine-0"):
                node["InstanceStatus"] = {"Status": "Failure"}
        return {**page}

    service.serves("ListClusterNodes", first_failed)
    submit_host = resolve(NAME, options(via="controller")).settings["submit_host"]
    assert submit_host.endswith(f"_controller-machine-{instance_id('controller-machine-1')}")


def test_without_a_controller_every_node_gets_its_session(service: Service) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 40)})
    assert resolve(NAME, options()).connection == "hyperpod"
    with pytest.raises(InventoryError, match=r"has no controller .* expected --via nodes"):
        resolve(NAME, options(via="controller"))


def test_a_way_that_there_is_not_is_named(service: Service) -> None:
    with_cluster(service, GROUPS)
    with pytest.raises(InventoryError, match="--via 'ssh:login1' is not a way to a HyperPod cluster; expected auto"):
        resolve(NAME, options(via="ssh:login1"))


NAMES = [private_name(f"workers-{number}").partition(".")[0] for number in range(3)]
SICK = "uncorrected errors in DRAM"


@pytest.fixture
def bed(manager: SystemsManager, service: Service) -> Iterator[SlurmBed]:
    """A HyperPod cluster whose controller and workers are a real Slurm; Systems Manager runs commands in them."""
    images = {name: healthy_p5(name) for name in NAMES}
    images[NAMES[1]] = BY_NAME[SICK].put(images[NAMES[1]])
    with slurm(images) as running:
        inside = {
            f"sagemaker-cluster:{ID}_workers-{instance_id(f'workers-{number}')}": name
            for number, name in enumerate(NAMES)
        } | {ADDRESS: CONTROLLER}

        def run(target: str, arguments: object) -> bytes:
            done = running.node(inside[target]).run(list(arguments), timeout=600)  # type: ignore[call-overload]
            return bytes(done.stdout + done.stderr)

        manager.run = run
        with_cluster(service, GROUPS)
        yield running


def ran(tmp_path: Path, *arguments: str) -> dict[str, dict[str, Verdict]]:
    """The verdicts of a run as typed by a user, by node."""
    written = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "pytest", "--cluster", NAME, "--region", "us-west-2", "--results", str(written)]
    done = subprocess.run(
        [*command, f"--rootdir={ROOT}", "-p", "no:cacheprovider", str(ROOT / "checks"), *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 10), done.stdout
    by_node: dict[str, dict[str, Verdict]] = {}
    for result in read_results(written):
        by_node.setdefault(result.node, {})[result.check] = result.verdict
    return by_node


@needs_slurm
@pytest.mark.parametrize("plugin", PLUGINS, indirect=True)
def test_one_session_to_the_controller_gives_the_verdicts_of_a_session_for_each_node(
    bed: SlurmBed, manager: SystemsManager, tmp_path: Path
) -> None:
    through = ran(tmp_path, "--via", "controller", "-m", "preflight and not control_plane")
    assert manager.started == [ADDRESS]
    (tmp_path / "results.jsonl").unlink()
    direct = ran(tmp_path, "--via", "nodes", "-m", "preflight and not control_plane")
    assert len(manager.started) == 1 + len(NAMES)
    assert through == direct
    assert through[NAMES[1]]["gpu.no_uncorrected_ecc"] is Verdict.FAIL
    assert manager.open == {}


@needs_slurm
def test_a_node_that_slurm_starts_nothing_on_gets_a_session_of_its_own(
    bed: SlurmBed, manager: SystemsManager, tmp_path: Path
) -> None:
    bed.output_of("scontrol", "update", f"NodeName={NAMES[2]}", "State=DRAIN", "Reason=the fan is loud")
    by_node = ran(tmp_path, "--via", "controller", "-m", "(node and prolog) or control_plane")
    assert {name: by_node[name]["node.reachable"] for name in NAMES} == dict.fromkeys(NAMES, Verdict.PASS)
    assert sorted(manager.started, key=len) == sorted(
        [ADDRESS, ADDRESS, f"sagemaker-cluster:{ID}_workers-{instance_id('workers-2')}"], key=len
    )
    assert by_node[NAME]["control_plane.slurm_nodes_take_jobs"] is Verdict.FAIL
    assert by_node[NAME]["control_plane.slurm_gres"] is Verdict.PASS
