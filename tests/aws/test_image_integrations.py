"""What users copy for their images: linted, and run on fake nodes as Image Builder, cloud-init and systemd run it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.aws.command_line import aws_in
from tests.aws.service import DENIED, Service, environment
from tests.builders.wheel import Installed
from tests.faults import BY_NAME
from tests.manifest.deviations import DEVIATIONS
from tests.manifest.manifests import good, manifest_text
from tests.reports.reported import FILES
from tests.testbed.image import File, Link
from tests.testbed.needs import needs_nodes
from tests.testbed.node import ENVIRONMENT, Node, NodeImage, entered, healthy_p5, with_file, with_tool

INTEGRATIONS = Path(__file__).parents[2] / "integrations"
COMPONENT = INTEGRATIONS / "image-builder" / "clusterproof.yml"
GITHUB, GITLAB = INTEGRATIONS / "ci" / "github.yml", INTEGRATIONS / "ci" / "gitlab.yml"
FIRST_BOOT = INTEGRATIONS / "user-data" / "first-boot.sh"
IDLE = INTEGRATIONS / "systemd" / "clusterproof-idle"
CLUSTERPROOF = str(Path(sys.executable).with_name("clusterproof"))
PACKAGE = "https://wheels.example/clusterproof-1-py3-none-any.whl#sha256=0"
PARAMETERS = {"Manifest": "s3://images/golden.toml", "Reports": "s3://images/reports", "Package": PACKAGE}

needs_shellcheck = pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="shellcheck is not installed: apt-get install shellcheck"
)
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed: apt-get install systemd"
)


def component() -> dict[str, Any]:
    """The component of Image Builder."""
    data: dict[str, Any] = yaml.safe_load(COMPONENT.read_text())
    return data


def steps(options: str = "-m ami", path: Path = COMPONENT, **further: str) -> list[dict[str, Any]]:
    """Its steps, with its parameters filled in as Image Builder does."""
    text = path.read_text()
    for name, value in {**PARAMETERS, "Options": options, **further}.items():
        text = text.replace(f"{{{{ {name} }}}}", value)
    assert "{{" not in text
    (phase,) = yaml.safe_load(text)["phases"]
    found: list[dict[str, Any]] = phase["steps"]
    return found


def shell_parts() -> dict[str, str]:
    """Every piece of shell, in scripts and in YAML, by where it stands."""
    scripts = [*INTEGRATIONS.rglob("*.sh"), IDLE]
    parts = {path.name: path.read_text() for path in scripts}
    for step in steps():
        if step["action"] == "ExecuteBash":
            parts |= {f"component {step['name']}": f"#!/bin/bash\n{line}" for line in step["inputs"]["commands"]}
    for step in yaml.safe_load(GITHUB.read_text())["jobs"]["gate"]["steps"]:
        if "run" in step:
            parts[f"github {step['name']}"] = f"#!/bin/bash\n{step['run']}\n"
    job = yaml.safe_load(GITLAB.read_text())["gate"]
    for key in ("before_script", "script", "after_script"):
        parts[f"gitlab {key}"] = "#!/bin/sh\n" + "\n".join(job[key]) + "\n"
    return parts


@pytest.mark.parametrize("name", shell_parts())
def test_every_piece_of_shell_is_shell(name: str) -> None:
    data = subprocess.run(["sh", "-n"], input=shell_parts()[name], capture_output=True, text=True, check=False)
    assert (data.returncode, data.stderr) == (0, "")


@needs_shellcheck
@pytest.mark.parametrize("name", shell_parts())
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    data = subprocess.run(["shellcheck", "-"], input=shell_parts()[name], capture_output=True, text=True, check=False)
    assert data.returncode == 0, data.stdout


def test_the_component_has_the_form_that_image_builder_reads() -> None:
    data = component()
    assert (data["schemaVersion"], [phase["name"] for phase in data["phases"]]) == (1.0, ["test"])
    named = {name: rule for parameter in data["parameters"] for name, rule in parameter.items()}
    assert named.keys() == {*PARAMETERS, "Options"}
    assert all(rule["type"] == "string" and rule["description"] for rule in named.values())
    assert set(re.findall(r"\{\{ (\w+) \}\}", COMPONENT.read_text())) == named.keys()
    for step in steps():
        assert step["action"] in ("ExecuteBash", "S3Download", "S3Upload")
        assert step["onFailure"] in ("Abort", "Continue")
    assert [step["onFailure"] for step in steps() if step["name"] == "Gate"] == ["Continue"]  # the reports are uploaded


def test_both_pipelines_terminate_whatever_happens_and_keep_the_reports() -> None:
    github = yaml.safe_load(GITHUB.read_text())["jobs"]["gate"]
    always = [step for step in github["steps"] if step.get("if") == "always()"]
    assert [step.get("run", step.get("uses")) for step in always] == [
        "sh gate.sh terminate",
        "actions/upload-artifact@v4",
    ]
    gitlab = yaml.safe_load(GITLAB.read_text())["gate"]
    assert gitlab["after_script"] == ["sh gate.sh terminate"]
    assert gitlab["artifacts"]["when"] == "always"
    for minutes, lifetime in (
        (github["timeout-minutes"], github["env"]["LIFETIME_MINUTES"]),
        (int(gitlab["timeout"].split()[0]), gitlab["variables"]["LIFETIME_MINUTES"]),
    ):
        assert minutes < int(lifetime)  # the instance outlives the pipeline, and not by much


def test_both_pipelines_give_the_gate_what_it_asks_for() -> None:
    due = set(re.findall(r"\$\{(\w+):\?", (INTEGRATIONS / "ci" / "gate.sh").read_text()))
    assert due <= yaml.safe_load(GITHUB.read_text())["jobs"]["gate"]["env"].keys()
    gitlab = GITLAB.read_text()
    assert all(name in gitlab for name in due)


# Image Builder's agent, as far as the component needs it: bash for each command.
PIP = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {python} "$@"
mkdir -p "$3/bin"
ln -sf {clusterproof} "$3/bin/clusterproof"
printf '#!/bin/sh\\necho "$@" >>{log}\\n' >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""
OLD = File("#!/bin/sh\nexit 1\n", 0o755)  # a python3 that is not of the version asked for
STAND_INS = "/opt/stand-ins"
PATH = f"{STAND_INS}:{ENVIRONMENT['PATH']}"


def with_installer(image: NodeImage) -> NodeImage:
    """`python3 -m venv` gives a folder with this checkout's clusterproof, and a pip that only writes down its words."""
    script = PIP.format(python=sys.executable, clusterproof=CLUSTERPROOF, log="/run/pip.log")
    return with_file(image, f"{STAND_INS}/python3", File(script, 0o755))


def run_component(
    node: Node, options: str, path: Path = COMPONENT, **further: str
) -> dict[str, subprocess.CompletedProcess[bytes]]:
    """Run its steps; S3's actions move the manifest, and nothing else."""
    ended = {}
    for step in steps(options, path, **further):
        if step["action"] == "S3Download":
            (asked,) = step["inputs"]
            (node.root / asked["destination"].lstrip("/")).write_text(manifest_text(good()))
        elif step["action"] == "ExecuteBash":
            (command,) = step["inputs"]["commands"]
            ran = node.run(["bash", "-c", command], env={"PATH": PATH}, timeout=300)
            ended[step["name"]] = ran
    return ended


@needs_nodes
def test_the_component_passes_a_good_image_and_writes_its_reports() -> None:
    with entered(with_installer(healthy_p5())) as node:
        ended = run_component(node, "-m ami -k 'manifest or image'")
        data = {name: ran.returncode for name, ran in ended.items()}
        assert data == dict.fromkeys(("Install", "Settle", "Gate"), 0), ended["Gate"].stdout + ended["Gate"].stderr
        written = {path.name for path in (node.root / "var/tmp/clusterproof/reports").iterdir()}
        assert written == {*FILES, "recording"}
        assert not (node.root / "var/tmp/clusterproof/runs").exists()
        assert (node.root / "run/pip.log").read_text() == f"install --quiet {PACKAGE}\n"


@needs_nodes
def test_where_python3_is_too_old_the_component_takes_a_newer_one_beside_it() -> None:
    image = with_installer(healthy_p5())
    image = with_file(image, f"{STAND_INS}/python3.12", image.files[f"{STAND_INS}/python3"])
    with entered(with_file(image, f"{STAND_INS}/python3", OLD)) as node:
        ended = run_component(node, "-m ami -k 'manifest or image'")
        assert {name: ran.returncode for name, ran in ended.items()} == dict.fromkeys(("Install", "Settle", "Gate"), 0)


@needs_nodes
def test_where_python3_is_too_old_the_first_boot_takes_a_newer_one_beside_it(aws: dict[str, str]) -> None:
    image = with_installer(BY_NAME["a GPU that is lost"].put(healthy_p5()))
    image = with_file(image, f"{STAND_INS}/python3.12", image.files[f"{STAND_INS}/python3"])
    for _, log in first_boot(with_file(image, f"{STAND_INS}/python3", OLD), aws):
        assert "gpu.gpu_answers" in log


# A node's own Python, which has no network: a real pip takes the wheel alone, and finds what it depends on here.
VENV = """#!/bin/sh
{python} "$@" || exit
[ "$1 $2" != "-m venv" ] || echo {borrowed} >"$(echo "$3"/lib/python3*/site-packages)/borrowed.pth"
"""
OFFLINE = "[global]\nno-deps = true\nno-index = true\n"


def with_python(image: NodeImage) -> NodeImage:
    """A node whose `python3` makes real environments, with a real pip in them."""
    script = VENV.format(python=sys.executable, borrowed=sysconfig.get_path("purelib"))
    return with_file(with_file(image, "/etc/pip.conf", OFFLINE), f"{STAND_INS}/python3", File(script, 0o755))


@needs_nodes
def test_the_component_that_the_wheel_brings_installs_the_wheel_and_gates(wheel: Path, installed: Installed) -> None:
    path = installed.package / "integrations" / "image-builder" / COMPONENT.name
    with entered(with_python(healthy_p5())) as node:
        ended = run_component(node, "-m ami -k 'manifest or image'", path, Package=str(wheel))
        data = {name: (ran.returncode, ran.stderr) for name, ran in ended.items()}
        assert data == dict.fromkeys(("Install", "Settle", "Gate"), (0, b"")), ended["Gate"].stdout
        assert b"rootdir: /var/tmp/clusterproof/lib/" in ended["Gate"].stdout


@needs_nodes
def test_the_component_fails_on_an_image_that_deviates_and_says_in_what() -> None:
    put, (line,) = DEVIATIONS["an empty library"]
    with entered(with_installer(put(healthy_p5()))) as node:
        gate = run_component(node, "-m ami -k manifest")["Gate"]
        assert gate.returncode == 1
        assert line.partition(":")[0] in gate.stdout.decode()


# cloud-init's part: the script is run once, and starts a unit.
SYSTEMD_RUN = """#!/bin/sh
while :; do case $1 in --setenv=*) export "${1#--setenv=}"; shift ;; --*) shift ;; *) break ;; esac; done
exec "$@"
"""
TOPIC = "arn:aws:sns:us-west-2:123456789012:nodes"


@pytest.fixture
def published(service: Service) -> list[dict[str, Any]]:
    """What the topic is told."""
    heard: list[dict[str, Any]] = []

    def publish(asked: dict[str, Any]) -> str:
        heard.append(asked)
        return "<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>"

    service.serves("Publish", publish)
    return heard


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
    with entered(image) as node:
        data = {**aws, "TOPIC": TOPIC, "PACKAGE": PACKAGE, **further}
        ran = node.run(["sh", "/var/lib/cloud/instance/user-data.txt"], env=data, timeout=300)
        assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")
        yield node, (node.root / "var/log/clusterproof/first-boot.log").read_text()


@needs_nodes
def test_a_node_that_is_fit_notifies_nobody(aws: dict[str, str], published: list[dict[str, Any]]) -> None:
    ready = with_file(healthy_p5(), "/opt/clusterproof/bin/clusterproof", Link("/bin/true"))
    for node, log in first_boot(ready, aws):
        assert "is fit as far as checked" in log
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
def test_the_script_that_the_wheel_brings_installs_the_wheel_and_checks(
    aws: dict[str, str], published: list[dict[str, Any]], wheel: Path, installed: Installed
) -> None:
    script = installed.package / "integrations" / "user-data" / FIRST_BOOT.name
    sick = BY_NAME["a GPU that is lost"].put(with_python(healthy_p5()))
    for node, log in first_boot(sick, aws, script, PACKAGE=str(wheel)):
        assert "rootdir: /opt/clusterproof/lib/" in log
        assert (node.root / "var/log/clusterproof/first-boot.exit").read_text() == "1\n"
    assert [message["Subject"] for message in published] == ["clusterproof: node001 FAILED its checks"]


@needs_nodes
@pytest.mark.parametrize(
    ("further", "words"),
    [
        ({"MANIFEST": "s3://nowhere/golden.toml"}, "was not checked: s3://nowhere/golden.toml could not be read"),
        ({"PACKAGE": ""}, "was not checked: clusterproof could not be installed"),
        ({"HOME_FOLDER": "/proc/nowhere"}, "was not checked: clusterproof could not be installed"),
    ],
)
def test_a_node_that_could_not_be_checked_notifies_too(
    aws: dict[str, str], published: list[dict[str, Any]], further: dict[str, str], words: str
) -> None:
    for _ in first_boot(healthy_p5(), aws, **further):
        pass
    assert [message["Subject"] for message in published] == [f"clusterproof: node001 {words}"[:100]]


@needs_nodes
def test_a_topic_that_may_not_be_told_is_said_in_the_log(
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
    data = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    ours = [line for line in (data.stdout + data.stderr).splitlines() if "clusterproof" in line]
    assert ours == []


HOME = "/opt/clusterproof/bin"
NOTIFIED = "/run/notified"


def idle_node(image: NodeImage, status: int) -> NodeImage:
    """A node whose clusterproof ends so, and that writes down notifications."""
    stand_in = f'#!/bin/sh\necho FAIL one thing\n: >"$4.new"\nexit {status}\n'
    image = with_file(image, f"{HOME}/clusterproof", File(stand_in, 0o755))
    image = with_tool(image, "notify", f'#!/bin/sh\necho "$*" >>{NOTIFIED}\n')
    return with_file(image, f"{HOME}/clusterproof-idle", File(IDLE.read_text(), 0o755))


def wake(node: Node) -> str:
    """Run what the timer runs; what goes to the journal."""
    ran = node.run([f"{HOME}/clusterproof-idle"], env={"NOTIFY": "notify", "LOGS_DIRECTORY": "/var/log/clusterproof"})
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode().strip()


@needs_nodes
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "fit as far as checked"),
        (1, "FAILED: FAIL one thing"),
        (6, "not proven"),
        (4, "not checked: clusterproof ended with 4"),
    ],
)
def test_an_idle_node_is_checked_and_says_how_it_is(status: int, said: str) -> None:
    with entered(idle_node(healthy_p5(), status)) as node:
        assert wake(node).startswith(said)


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
            "clusterproof: node001: fit as far as checked",
        ]


@needs_nodes
def test_a_node_with_a_job_of_slurms_is_let_be() -> None:
    image = idle_node(healthy_p5(), 1)
    for path in ("/usr/sbin/slurmstepd", "/usr/bin/another"):
        image = with_file(image, path, File(Path("/bin/sleep").read_bytes(), 0o755))
    with entered(with_file(image, "/run/slurmstepd", Link("/usr/bin/another"))) as node:
        node.start(["/run/slurmstepd", "60"])
        node.run(["sh", "-c", "until grep -qx slurmstepd /proc/[0-9]*/comm; do sleep 0.05; done"])
        assert not wake(node).startswith("not checked")
        node.start(["/usr/sbin/slurmstepd", "60"])
        node.run(["sh", "-c", "until [ $(grep -x slurmstepd /proc/[0-9]*/comm | wc -l) = 2 ]; do sleep 0.05; done"])
        assert wake(node) == "not checked: a job of Slurm's runs"


@needs_nodes
def test_a_node_whose_gpus_are_used_is_let_be() -> None:
    image = with_tool(idle_node(healthy_p5(), 1), "nvidia-smi", "#!/bin/sh\necho 4711\n")
    with entered(image) as node:
        assert wake(node) == "not checked: process 4711 uses a GPU"
