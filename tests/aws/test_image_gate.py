"""The gate of an image pipeline, unmodified: launch, settle, compare with the manifest, terminate whatever happens."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.aws.command_line import aws_in
from tests.aws.ec2 import with_vpc
from tests.aws.service import DENIED, Answer, Service
from tests.aws.systems_manager import SystemsManager, in_nodes, with_agent
from tests.builders.wheel import Installed
from tests.manifest.deviations import DEVIATIONS
from tests.manifest.manifests import good, manifest_text
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, NodeImage, entered, healthy_p5, with_file, with_memlock

pytestmark = needs_nodes

CI = Path(__file__).parents[2] / "integrations" / "ci"
TAG = "clusterproof-gate"


@pytest.fixture
def folder(tmp_path: Path, service: Service, manager: SystemsManager) -> Iterator[Path]:
    """A pipeline's folder with the manifest; `aws` is on PATH."""
    (tmp_path / "golden.toml").write_text(manifest_text(good()))
    with aws_in(tmp_path / "bin"):
        yield tmp_path


@pytest.fixture
def subnet(service: Service) -> str:
    """The subnet in which instances are launched, with their instance profile."""
    boto3.client("iam").create_instance_profile(InstanceProfileName="gate")
    return with_vpc(service, "10.9").near


def launched_as(manager: SystemsManager, image: NodeImage) -> Iterator[Node]:
    """Have Systems Manager's commands run on a fake node."""
    with entered(with_agent(image)) as node:
        manager.run = lambda _target, command: in_nodes({"": node})("", command)
        yield node


def gate(
    folder: Path, subnet: str, *arguments: str, script: Path = CI / "gate.sh", **further: str
) -> subprocess.CompletedProcess[str]:
    """Run gate.sh as a pipeline does."""
    variables = {
        "RUN": "run-1",
        "IMAGE": "ami-12345678",
        "INSTANCE_TYPE": "p5.48xlarge",
        "SUBNET": subnet,
        "INSTANCE_PROFILE": "gate",
        "MANIFEST": "golden.toml",
        "SETTLE_S": "0",
        "PAUSE_S": "0",
        "CLUSTERPROOF": f"{sys.executable} -c 'pass'",
        **further,
    }
    return subprocess.run(
        ["sh", str(script), *arguments],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def states(service: Service) -> list[str]:
    """The states of all instances of the run."""
    reservations = boto3.client("ec2").describe_instances(Filters=[{"Name": f"tag:{TAG}", "Values": ["run-1"]}])
    return [
        instance["State"]["Name"]
        for reservation in reservations["Reservations"]
        for instance in reservation["Instances"]
    ]


CLUSTERPROOF = str(Path(sys.executable).with_name("clusterproof"))


def test_a_good_image_passes_and_its_instance_is_gone(
    folder: Path, subnet: str, service: Service, manager: SystemsManager
) -> None:
    for _ in launched_as(manager, healthy_p5()):
        ran = gate(folder, subnet, CLUSTERPROOF=CLUSTERPROOF, OPTIONS="-k manifest")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert states(service) == ["terminated"]
    assert "<testsuite" in (folder / "reports" / "junit.xml").read_text()


def test_github_running_the_gate_again_launches_another_instance(
    folder: Path, subnet: str, manager: SystemsManager
) -> None:
    for _ in launched_as(manager, healthy_p5()):
        for attempt in "12":
            ran = gate(folder, subnet, RUN="", GITHUB_RUN_ID="7", GITHUB_RUN_ATTEMPT=attempt)
            assert ran.returncode == 0, ran.stdout + ran.stderr
    reservations = boto3.client("ec2").describe_instances(Filters=[{"Name": "tag-key", "Values": [TAG]}])[
        "Reservations"
    ]
    instances = [instance for reservation in reservations for instance in reservation["Instances"]]
    names = {tag["Value"] for instance in instances for tag in instance["Tags"] if tag["Key"] == TAG}
    assert names == {"7-1", "7-2"}


def test_a_deviation_fails_the_pipeline_and_the_instance_is_gone(
    folder: Path, subnet: str, service: Service, manager: SystemsManager
) -> None:
    put, (line,) = DEVIATIONS["no enroot"]
    for _ in launched_as(manager, put(healthy_p5())):
        ran = gate(folder, subnet, CLUSTERPROOF=CLUSTERPROOF, OPTIONS="-k manifest")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert line in " ".join(ran.stdout.split())
    assert states(service) == ["terminated"]


@pytest.mark.parametrize(
    ("deviation", "exit_code"),
    [
        pytest.param("", 0, id="good", marks=pytest.mark.in_turn("good", by="test")),
        pytest.param("no enroot", 1, id="deviates", marks=pytest.mark.in_turn("deviates", by="test")),
    ],
)
def test_the_gate_that_the_wheel_brings_gates_with_what_is_installed(
    folder: Path,
    subnet: str,
    service: Service,
    manager: SystemsManager,
    installed: Installed,
    deviation: str,
    exit_code: int,
) -> None:
    put, (line,) = DEVIATIONS[deviation] if deviation else (lambda image: image, ("6 passed",))
    variables = {"PATH": f"{installed.bin}:{os.environ['PATH']}", "CLUSTERPROOF": "", "OPTIONS": "-v -k manifest"}
    for _ in launched_as(manager, put(healthy_p5())):
        ran = gate(folder, subnet, script=installed.package / "integrations" / "ci" / "gate.sh", **variables)
    assert ran.returncode == exit_code, ran.stdout + ran.stderr
    assert line in " ".join(ran.stdout.split())
    assert f"rootdir: {installed.package}" in ran.stdout
    assert states(service) == ["terminated"]


LITTLE = "8388608"  # locked memory in bytes: systemd's limit for services, including SSM's agent
FOR_LOGINS = "/etc/security/limits.d/01_efa.conf"


def without_daemons(image: NodeImage) -> NodeImage:
    """Run no daemons that start jobs."""
    kept = {name: limit for name, limit in image.daemons.items() if name not in ("slurmd", "containerd")}
    return replace(image, daemons=kept)


@pytest.mark.parametrize(
    ("image", "exit_code", "message"),
    [
        (healthy_p5(), 0, ""),
        (with_memlock(healthy_p5(), LITTLE, "slurmd"), 1, "memlock is 8 MiB for slurmd; expected at least"),
        (with_memlock(without_daemons(healthy_p5()), LITTLE, "sshd"), 1, "memlock is 8 MiB for a login; expected"),
        (
            with_file(
                with_memlock(without_daemons(healthy_p5()), LITTLE, "sshd"), FOR_LOGINS, "*  soft  memlock  unlimited\n"
            ),
            0,
            "",
        ),
        (without_daemons(healthy_p5()), 10, "nothing that starts jobs runs on the node; expected slurmd, containerd"),
    ],
    ids=["healthy", "slurmd", "logins", "logins as EFA's installer sets them", "nobody"],
)
def test_the_gate_evaluates_the_limits_that_jobs_inherit_and_not_the_agents_own(
    folder: Path, subnet: str, manager: SystemsManager, image: NodeImage, exit_code: int, message: str
) -> None:
    for _ in launched_as(manager, with_memlock(image, LITTLE)):
        ran = gate(folder, subnet, CLUSTERPROOF=CLUSTERPROOF, OPTIONS="-k memlock")
    assert ran.returncode == exit_code, ran.stdout + ran.stderr
    assert message in " ".join(ran.stdout.split())


@pytest.mark.parametrize("status", [0, 1, 4, 10])
def test_the_exit_code_is_clusterproofs(folder: Path, subnet: str, service: Service, status: int) -> None:
    assert gate(folder, subnet, CLUSTERPROOF=ending(folder, f"exit {status}")).returncode == status
    assert states(service) == ["terminated"]


def ending(folder: Path, script: str) -> str:
    """A program that takes clusterproof's place."""
    (folder / "stand-in").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "stand-in").chmod(0o755)
    return str(folder / "stand-in")


@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP"])
def test_a_pipeline_that_is_stopped_leaves_no_instance(
    folder: Path, subnet: str, service: Service, signal: str
) -> None:
    ran = gate(folder, subnet, CLUSTERPROOF=ending(folder, f"kill -{signal} $PPID"))
    assert ran.returncode in (130, 143)
    assert states(service) == ["terminated"]


def test_what_a_killed_pipeline_leaves_its_last_step_terminates(folder: Path, subnet: str, service: Service) -> None:
    gate(folder, subnet, CLUSTERPROOF=ending(folder, "kill -KILL $PPID"))
    assert states(service) == ["running"]
    last = gate(folder, subnet, "terminate")
    assert (last.returncode, states(service)) == (0, ["terminated"]), last.stderr
    assert gate(folder, subnet, "terminate").returncode == 0  # nothing is left, which is a success


def test_an_instance_without_its_agent_is_incomplete(
    folder: Path, subnet: str, service: Service, manager: SystemsManager
) -> None:
    service.serves("DescribeInstanceInformation", lambda _: {"InstanceInformationList": []})
    ran = gate(folder, subnet, AGENT_TRIES="3")
    assert (ran.returncode, "is not online in Systems Manager" in ran.stderr) == (10, True)
    assert states(service) == ["terminated"]


def test_an_instance_that_never_passes_its_status_checks_is_incomplete(
    folder: Path, subnet: str, service: Service
) -> None:
    empty = '<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"/>'
    service.serves("DescribeInstanceStatus", lambda _: empty)
    ran = gate(folder, subnet)
    assert (ran.returncode, "was not seen to pass its status checks" in ran.stderr) == (10, True), ran.stderr
    assert states(service) == ["terminated"]


def test_a_run_with_a_long_name_has_a_client_token_of_its_own_that_ec2_takes(
    folder: Path, subnet: str, service: Service
) -> None:
    tokens: list[str] = []

    def launch(request: dict[str, Any]) -> Answer:
        tokens.append(request["ClientToken"])
        return DENIED

    service.serves("RunInstances", launch)
    for build in (41, 42):
        gate(folder, subnet, RUN=f"jenkins-jenkins-platform-images-gpu-gate-the-image-{build}")  # BUILD_TAG
    assert [len(token) <= 64 for token in tokens] == [True, True]  # EC2 takes no longer one
    assert len(set(tokens)) == 2


def test_an_instance_that_may_not_be_terminated_is_named(folder: Path, subnet: str, service: Service) -> None:
    service.says("TerminateInstances", DENIED)
    ran = gate(folder, subnet, CLUSTERPROOF="true")
    assert ran.returncode == 3
    assert f"NOT TERMINATED: the instances tagged {TAG}=run-1" in ran.stderr


def test_the_instance_ends_itself_should_the_pipelines_machine_die(folder: Path, subnet: str, service: Service) -> None:
    gate(folder, subnet, CLUSTERPROOF="true", LIFETIME_MINUTES="45")
    ec2 = boto3.client("ec2")
    (instance,) = (i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"])
    attribute = ec2.describe_instance_attribute(
        InstanceId=instance["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
    )
    assert attribute["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    assert (folder / "reports" / "user-data").read_text() == "#!/bin/sh\nshutdown -P +45\n"


def test_its_policy_allows_what_it_calls_and_nothing_that_it_does_not(
    folder: Path, subnet: str, service: Service, manager: SystemsManager
) -> None:
    for _ in launched_as(manager, healthy_p5()):
        service.signed.clear()
        gate(folder, subnet, CLUSTERPROOF=CLUSTERPROOF, OPTIONS="-k manifest")
    statements = json.loads((CI / "iam.json").read_text())["Statement"]
    allowed = {
        action
        for statement in statements
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    called = {call for call in service.signed if not call.endswith(":")}
    assert called <= allowed, called - allowed
    unseen = {"ec2:CreateTags", "iam:PassRole"}  # EC2 needs these while it launches
    assert allowed - called == unseen
    assert not [action for action in allowed if fnmatch.fnmatch(action, "*[*]*")]
