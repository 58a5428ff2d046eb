"""Files that users copy for their images: linted, and run on fake nodes as Image Builder runs them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.aws.installers import IDLE, INTEGRATIONS, OLD, PACKAGE, STAND_INS, with_installer, with_python
from tests.builders.wheel import Installed
from tests.manifest.deviations import DEVIATIONS
from tests.manifest.manifests import good, manifest_text
from tests.reports.reported import FILES
from tests.testbed.needs import needs_nodes
from tests.testbed.node import ENVIRONMENT, Node, entered, healthy_p5, with_file

COMPONENT = INTEGRATIONS / "image-builder" / "clusterproof.yml"
GITHUB, GITLAB = INTEGRATIONS / "ci" / "github.yml", INTEGRATIONS / "ci" / "gitlab.yml"
PARAMETERS = {"Manifest": "s3://images/golden.toml", "Reports": "s3://images/reports", "Package": PACKAGE}
needs_shellcheck = pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="shellcheck is not installed: apt-get install shellcheck"
)


def component() -> dict[str, Any]:
    """Image Builder's component."""
    document: dict[str, Any] = yaml.safe_load(COMPONENT.read_text())
    return document


def steps(options: str = "", path: Path = COMPONENT, **further: str) -> list[dict[str, Any]]:
    """The component's steps with parameters filled in, as Image Builder does."""
    text = path.read_text()
    for name, value in {**PARAMETERS, "Options": options, **further}.items():
        text = text.replace(f"{{{{ {name} }}}}", value)
    assert "{{" not in text
    (phase,) = yaml.safe_load(text)["phases"]
    phase_steps: list[dict[str, Any]] = phase["steps"]
    return phase_steps


def shell_parts() -> dict[str, str]:
    """Every piece of shell in scripts and YAML, by its location."""
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
    ended = subprocess.run(["sh", "-n"], input=shell_parts()[name], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_shellcheck
@pytest.mark.parametrize("name", shell_parts())
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    ended = subprocess.run(["shellcheck", "-"], input=shell_parts()[name], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_component_has_the_form_that_image_builder_reads() -> None:
    document = component()
    assert (document["schemaVersion"], [phase["name"] for phase in document["phases"]]) == (1.0, ["test"])
    named = {name: rule for parameter in document["parameters"] for name, rule in parameter.items()}
    assert named.keys() == {*PARAMETERS, "Options"}
    assert all(rule["type"] == "string" and rule["description"] for rule in named.values())
    assert set(re.findall(r"\{\{ (\w+) \}\}", COMPONENT.read_text())) == named.keys()
    for step in steps():
        assert step["action"] in ("ExecuteBash", "S3Download", "S3Upload")
        assert step["onFailure"] in ("Abort", "Continue")
    assert [step["onFailure"] for step in steps() if step["name"] == "Gate"] == ["Continue"]  # the reports are uploaded


def test_further_options_leave_the_component_the_checks_of_images() -> None:
    (gate,) = (step for step in steps("--sudo") if step["name"] == "Gate")
    (command,) = gate["inputs"]["commands"]
    assert "clusterproof --cluster local -m ami --policy golden.toml" in command
    assert command.rstrip().endswith(" --sudo")


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
        assert minutes < int(lifetime)  # the instance outlives the pipeline, but not by much


def test_both_pipelines_give_the_gate_what_it_asks_for() -> None:
    due = set(re.findall(r"\$\{(\w+):\?", (INTEGRATIONS / "ci" / "gate.sh").read_text()))
    assert due <= yaml.safe_load(GITHUB.read_text())["jobs"]["gate"]["env"].keys()
    gitlab = GITLAB.read_text()
    assert all(name in gitlab for name in due)


PATH = f"{STAND_INS}:{ENVIRONMENT['PATH']}"


# Image Builder's agent, as far as the component needs it: bash for each command.
def run_component(
    node: Node, options: str, path: Path = COMPONENT, **further: str
) -> dict[str, subprocess.CompletedProcess[bytes]]:
    """Run its steps; S3's actions move only the manifest."""
    ended = {}
    for step in steps(options, path, **further):
        if step["action"] == "S3Download":
            (download,) = step["inputs"]
            (node.root / download["destination"].lstrip("/")).write_text(manifest_text(good()))
        elif step["action"] == "ExecuteBash":
            (command,) = step["inputs"]["commands"]
            ran = node.run(["bash", "-c", command], env={"PATH": PATH}, timeout=600)
            ended[step["name"]] = ran
    return ended


@needs_nodes
def test_the_component_passes_a_good_image_and_writes_its_reports() -> None:
    with entered(with_installer(healthy_p5())) as node:
        ended = run_component(node, "-m ami -k 'manifest or image'")
        statuses = {name: ran.returncode for name, ran in ended.items()}
        assert statuses == dict.fromkeys(("Install", "Settle", "Gate"), 0), ended["Gate"].stdout + ended["Gate"].stderr
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
def test_the_component_that_the_wheel_brings_installs_the_wheel_and_gates(wheel: Path, installed: Installed) -> None:
    path = installed.package / "integrations" / "image-builder" / COMPONENT.name
    with entered(with_python(healthy_p5())) as node:
        ended = run_component(node, "-v -m ami -k 'manifest or image'", path, Package=str(wheel))
        results = {name: (ran.returncode, ran.stderr) for name, ran in ended.items()}
        assert results == dict.fromkeys(("Install", "Settle", "Gate"), (0, b"")), ended["Gate"].stdout
        assert b"rootdir: /var/tmp/clusterproof/lib/" in ended["Gate"].stdout


@needs_nodes
def test_the_component_fails_on_an_image_that_deviates_and_says_in_what() -> None:
    put, (line,) = DEVIATIONS["an empty library"]
    with entered(with_installer(put(healthy_p5()))) as node:
        gate = run_component(node, "-k manifest")["Gate"]
        assert gate.returncode == 1
        assert line.partition(":")[0] in gate.stdout.decode()
