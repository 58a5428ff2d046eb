"""What a node runs at first boot and while idle, as cloud-init and systemd run it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.aws.command_line import aws_in
from tests.aws.installers import IDLE, INTEGRATIONS, OLD, PACKAGE, STAND_INS, with_installer, with_python
from tests.aws.service import DENIED, Service, environment
from tests.builders.wheel import Installed
from tests.faults import BY_NAME
from tests.testbed.image import File, Link
from tests.testbed.needs import needs_nodes
from tests.testbed.node import (
    ENVIRONMENT,
    Node,
    NodeImage,
    entered,
    healthy_p5,
    with_file,
    with_tool,
    with_whole_machine,
)

FIRST_BOOT = INTEGRATIONS / "user-data" / "first-boot.sh"
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed: apt-get install systemd"
)


@needs_nodes
def test_where_python3_is_too_old_the_first_boot_takes_a_newer_one_beside_it(aws: dict[str, str]) -> None:
    image = with_installer(BY_NAME["a GPU that is lost"].put(healthy_p5()))
    image = with_file(image, f"{STAND_INS}/python3.12", image.files[f"{STAND_INS}/python3"])
    for _, log in first_boot(with_file(image, f"{STAND_INS}/python3", OLD), aws):
        assert "gpu.gpu_answers" in log


# cloud-init's part: the script runs once, and starts a unit.
SYSTEMD_RUN = """#!/bin/sh
while :; do case $1 in --setenv=*) export "${1#--setenv=}"; shift ;; --*) shift ;; *) break ;; esac; done
exec "$@"
"""
TOPIC = "arn:aws:sns:us-west-2:123456789012:nodes"


@pytest.fixture
def published(service: Service) -> list[dict[str, Any]]:
    """The messages published to the topic."""
    messages: list[dict[str, Any]] = []

    def publish(message: dict[str, Any]) -> str:
        messages.append(message)
        return "<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>"

    service.serves("Publish", publish)
    return messages


@pytest.fixture
def aws(service: Service, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables with which a node finds AWS and the stand-ins."""
    with aws_in(tmp_path):
        yield environment(service) | {"PATH": f"{STAND_INS}:{tmp_path}:{ENVIRONMENT['PATH']}"}


def first_boot(
    image: NodeImage, aws: Mapping[str, str], script: Path = FIRST_BOOT, **further: str
) -> Iterator[tuple[Node, str]]:
    """A node on which the script has run, and its log."""
    image = image if f"{STAND_INS}/python3" in image.files else with_installer(image)
    image = with_tool(image, "systemd-run", SYSTEMD_RUN)
    image = with_file(image, "/var/lib/cloud/instance/user-data.txt", script.read_text())
    with entered(image, shares_network=True) as node:  # which has AWS's stand-ins
        variables = {**aws, "TOPIC": TOPIC, "PACKAGE": PACKAGE, **further}
        ran = node.run(["sh", "/var/lib/cloud/instance/user-data.txt"], env=variables, timeout=600)
        assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")
        yield node, (node.root / "var/log/clusterproof/first-boot.log").read_text()


@needs_nodes
def test_a_node_that_is_fit_notifies_nobody(aws: dict[str, str], published: list[dict[str, Any]]) -> None:
    ready = with_file(healthy_p5(), "/opt/clusterproof/bin/clusterproof", Link("/bin/true"))
    for node, log in first_boot(ready, aws):
        assert "is fit" in log
        assert (node.root / "var/log/clusterproof/first-boot.exit").read_text() == "0\n"
    assert published == []


@needs_nodes
def test_a_node_that_fails_its_first_boot_notifies_with_the_log(
    aws: dict[str, str], published: list[dict[str, Any]]
) -> None:
    for _, log in first_boot(BY_NAME["a GPU that is lost"].put(healthy_p5()), aws):
        assert "gpu.gpu_answers" in log
    (message,) = published
    assert message["TopicArn"] == TOPIC
    assert message["Subject"] == "clusterproof: node001 FAILED its checks"
    assert "the driver says GPU_IS_LOST" in message["Message"]


@needs_nodes
@pytest.mark.parametrize("last", [7000, 7001, 7002])
def test_a_message_is_sent_wherever_the_log_is_cut(
    aws: dict[str, str], published: list[dict[str, Any]], last: int
) -> None:
    failing = f"#!/bin/sh\nprintf '%s\\n' '{'…' * 3000}' '{'x' * last}'\nexit 1\n"
    image = with_file(healthy_p5(), "/opt/clusterproof/bin/clusterproof", File(failing, 0o755))
    for _, log in first_boot(image, aws):
        assert "nobody was notified" not in log
    assert [message["Message"].count("x") for message in published] == [last]


@needs_nodes
def test_the_script_that_the_wheel_brings_installs_the_wheel_and_checks(
    aws: dict[str, str], published: list[dict[str, Any]], wheel: Path, installed: Installed
) -> None:
    script = installed.package / "integrations" / "user-data" / FIRST_BOOT.name
    sick = BY_NAME["a GPU that is lost"].put(with_python(healthy_p5()))
    for node, log in first_boot(sick, aws, script, PACKAGE=str(wheel)):
        assert "cluster: local: 1 node (node001) by local" in log
        assert (node.root / "opt/clusterproof/lib").is_dir()
        assert (node.root / "var/log/clusterproof/first-boot.exit").read_text() == "1\n"
    assert [message["Subject"] for message in published] == ["clusterproof: node001 FAILED its checks"]


@needs_nodes
@pytest.mark.parametrize(
    ("further", "outcome"),
    [
        ({"MANIFEST": "s3://nowhere/golden.toml"}, "was not checked: s3://nowhere/golden.toml could not be read"),
        ({"PACKAGE": ""}, "was not checked: clusterproof could not be installed"),
        ({"HOME_FOLDER": "/proc/nowhere"}, "was not checked: clusterproof could not be installed"),
    ],
)
def test_a_node_that_could_not_be_checked_notifies_too(
    aws: dict[str, str], published: list[dict[str, Any]], further: dict[str, str], outcome: str
) -> None:
    for _ in first_boot(healthy_p5(), aws, FIRST_BOOT, **further):
        pass
    assert [message["Subject"] for message in published] == [f"clusterproof: node001 {outcome}"[:100]]


@needs_nodes
@pytest.mark.parametrize(
    ("cloud_init", "words"),
    [
        ("exec sleep infinity", "cloud-init has not ended within 1 s"),
        ("exit 1", "cloud-init ended with an error"),
    ],
)
def test_a_node_whose_first_boot_fails_or_never_ends_is_checked_all_the_same(
    aws: dict[str, str], published: list[dict[str, Any]], cloud_init: str, words: str
) -> None:
    failing = with_file(healthy_p5(), "/opt/clusterproof/bin/clusterproof", Link("/bin/false"))
    for _, log in first_boot(with_tool(failing, "cloud-init", f"#!/bin/sh\n{cloud_init}\n"), aws, BOOT_S="1"):
        assert f"\n{words}\n" in log
    assert [message["Subject"] for message in published] == ["clusterproof: node001 FAILED its checks"]


@needs_nodes
def test_a_topic_that_may_not_be_published_to_is_named_in_the_log(
    aws: dict[str, str],
    service: Service,
) -> None:
    service.says("Publish", DENIED)
    failing = with_file(healthy_p5(), "/opt/clusterproof/bin/clusterproof", Link("/bin/false"))
    for _, log in first_boot(failing, aws):
        assert f"nobody was notified: sns:Publish on {TOPIC} failed" in log


# systemd's part.


@needs_systemd
def test_the_units_are_what_systemd_reads(tmp_path: Path) -> None:
    for name in ("clusterproof-idle.service", "clusterproof-idle.timer"):
        text = (IDLE.parent / name).read_text().replace("/opt/clusterproof/bin/clusterproof-idle", str(IDLE))
        (tmp_path / name).write_text(text)
    units = [str(path) for path in tmp_path.iterdir()]
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    ours = [line for line in (ended.stdout + ended.stderr).splitlines() if "clusterproof" in line]
    assert ours == []


HOME = "/opt/clusterproof/bin"
NOTIFIED = "/run/notified"


def idle_node(image: NodeImage, status: int) -> NodeImage:
    """A node whose clusterproof exits like this and logs notifications; it has runuser, as this machine does."""
    stand_in = f'#!/bin/sh\necho FAIL one thing\n: >"$4.new"\nexit {status}\n'
    image = with_file(with_whole_machine(image), f"{HOME}/clusterproof", File(stand_in, 0o755))
    image = with_tool(image, "notify", f'#!/bin/sh\necho "$*" >>{NOTIFIED}\n')
    return with_file(image, f"{HOME}/clusterproof-idle", File(IDLE.read_text(), 0o755))


def wake(node: Node) -> str:
    """Run what the timer runs; returns the journal's lines."""
    ran = node.run([f"{HOME}/clusterproof-idle"], env={"NOTIFY": "notify", "LOGS_DIRECTORY": "/var/log/clusterproof"})
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode().strip()


@needs_nodes
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, "fit"),
        (1, "FAILED: FAIL one thing"),
        (10, "not proven"),
        (4, "not checked: clusterproof ended with 4"),
    ],
)
def test_an_idle_node_is_checked_and_says_how_it_is(status: int, expected: str) -> None:
    with entered(idle_node(healthy_p5(), status)) as node:
        assert wake(node).startswith(expected)


@needs_nodes
def test_nobody_else_reads_what_the_check_of_an_idle_node_said() -> None:
    with entered(
        with_file(idle_node(healthy_p5(), 1), "/var/log/clusterproof/idle.log", File("of before", 0o644))
    ) as node:
        wake(node)
        folder = node.root / "var/log/clusterproof"
        assert (folder / "idle.log").read_text() == "FAIL one thing\n"
        assert [file.name for file in folder.iterdir() if file.stat().st_mode & 0o077] == []


@needs_nodes
def test_only_a_change_is_notified() -> None:
    with entered(idle_node(healthy_p5(), 1)) as node:
        wake(node)
        wake(node)
        (node.root / HOME.lstrip("/") / "clusterproof").write_text("#!/bin/sh\n")
        wake(node)
        lines = (node.root / NOTIFIED.lstrip("/")).read_text().splitlines()
        assert lines == [
            "clusterproof: node001: FAILED: FAIL one thing",
            "clusterproof: node001: fit",
        ]


@needs_nodes
def test_another_fault_of_a_node_that_fails_already_is_notified_once() -> None:
    with entered(idle_node(healthy_p5(), 1)) as node:
        wake(node)
        program = node.root / HOME.lstrip("/") / "clusterproof"
        for others in (
            "FAIL one thing\nFAIL   another",
            "FAIL another\nFAIL one thing",
            "FAIL one thing\nFAIL a third",
        ):
            program.write_text(f"#!/bin/sh\necho '{others}'\nexit 1\n")
            wake(node)
        lines = (node.root / NOTIFIED.lstrip("/")).read_text().splitlines()
        more = "and 1 more: see /var/log/clusterproof/idle.log"
        assert [line.removeprefix("clusterproof: node001: FAILED: ") for line in lines] == [
            "FAIL one thing",
            f"FAIL one thing; {more}",
            f"FAIL one thing; {more}",
        ]


@needs_nodes
def test_a_node_with_a_job_of_slurms_is_let_be() -> None:
    image = idle_node(healthy_p5(), 1)
    for path in ("/usr/sbin/slurmstepd", "/usr/bin/another"):
        image = with_file(image, path, File(Path("/bin/sleep").read_bytes(), 0o755))
    with entered(with_file(image, "/run/slurmstepd", Link("/usr/bin/another"))) as node:
        node.start(["/run/slurmstepd", "60"])
        node.run(["sh", "-c", "until grep -qx slurmstepd /proc/[0-9]*/comm; do sleep 0.05; done"])
        node.start(["/usr/sbin/slurmstepd", "infinity"])  # of slurmd, with control groups of version 2: for ever
        node.run(["sh", "-c", "until [ $(grep -x slurmstepd /proc/[0-9]*/comm | wc -l) = 2 ]; do sleep 0.05; done"])
        assert not wake(node).startswith("not checked")
        node.start(["/usr/sbin/slurmstepd", "60"])
        node.run(["sh", "-c", "until [ $(grep -x slurmstepd /proc/[0-9]*/comm | wc -l) = 3 ]; do sleep 0.05; done"])
        assert wake(node) == "not checked: a job of Slurm's runs"


@needs_nodes
def test_a_node_whose_gpus_are_used_is_let_be() -> None:
    image = with_tool(idle_node(healthy_p5(), 1), "nvidia-smi", "#!/bin/sh\necho 4711\n")
    with entered(image) as node:
        assert wake(node) == "not checked: process 4711 uses a GPU"
