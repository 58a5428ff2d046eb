"""Files for a permanent watch: a systemd unit, a Deployment, alert rules, a dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from clusterproof.plugins.watch.http_server import Address
from clusterproof.plugins.watch.options import parser
from tests.builders.wheel import ROOT
from tests.watch.receiving import change
from tests.watch.sinks_of_day import OfDay, tick

INTEGRATIONS = ROOT / "integrations"
UNIT = INTEGRATIONS / "systemd" / "clusterproof-watch.service"
NAME = re.compile(r"\bclusterproof_watch_\w+")


def parsed(arguments: list[str], folder: Path) -> Any:
    """How the command parses these arguments, with its file of arguments in the folder."""
    (folder / "watch.args").write_text("slurm:\n--via=nodes\n--notify=slack://…\n--heartbeat=https://hc-ping.com/…\n")
    return parser().parse_args([word.replace("/etc/clusterproof", str(folder)) for word in arguments])


@pytest.mark.long
def test_the_unit_is_what_systemd_reads(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/clusterproof/bin/clusterproof", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "clusterproof" in line] == []


def test_the_unit_runs_a_command_that_there_is_and_goes_on_in_its_folder(tmp_path: Path) -> None:
    unit = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))
    program, command, *arguments = unit["ExecStart"].split()
    option = parsed(arguments, tmp_path)
    assert (program, command) == ("/opt/clusterproof/bin/clusterproof", "watch")
    assert option.record == f"/var/lib/{unit['StateDirectory']}"
    assert (option.x, option.via, option.heartbeat) == ("slurm:", "nodes", "https://hc-ping.com/…")
    assert unit["Restart"] == "always"
    assert unit["SuccessExitStatus"].split() == ["1", "10"]


def test_the_deployment_runs_a_command_that_there_is_with_the_rights_of_a_run(tmp_path: Path) -> None:
    every = list(yaml.safe_load_all((INTEGRATIONS / "kubernetes" / "watch.yaml").read_text()))
    (deployment,) = (entry["spec"] for entry in every if entry["kind"] == "Deployment")
    (container,) = deployment["template"]["spec"]["containers"]
    program, command, *arguments = container["command"]
    option = parsed(arguments, tmp_path)
    assert (program, command) == ("clusterproof", "watch")
    assert Address.of(option.listen).port == container["ports"][0]["containerPort"]
    mounts = {entry["mountPath"]: entry["name"] for entry in container["volumeMounts"]}
    volumes = {entry["name"]: entry for entry in deployment["template"]["spec"]["volumes"]}
    assert volumes[mounts["/data"]]["persistentVolumeClaim"]["claimName"] in {
        entry["metadata"]["name"] for entry in every
    }
    assert option.record.startswith("/data/")
    assert deployment["strategy"] == {"type": "Recreate"}
    bound = {entry["roleRef"]["name"] for entry in every if entry["kind"].endswith("RoleBinding")}
    assert bound == {"clusterproof"}


def scraped(url: str) -> str:
    """Its answer."""
    with urllib.request.urlopen(url, timeout=600) as answer:
        text: str = answer.read().decode()
    return text


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The labels of each metric that a watch serves over HTTP, on a day when everything happens."""
    watched = OfDay().hello().take(tick(100.0), tick(110.0))
    watched.day.silence(60)
    with watched.sinks as sinks:
        sinks.report([change("gpu001")])
        sinks.add_part("recording", lambda: True)
        sinks.listen(Address.of(":0"), ())
        watched.take(tick(120.0)).sinks.states_changed(["gpu001"])
        url = watched.own[-1].partition("metrics: ")[2]
        texts = [scraped(url)]
        watched.take(tick(130.0, late=10.0))
        texts.append(scraped(url))
    labels: dict[str, set[str]] = {}
    for family in (family for text in texts for family in text_string_to_metric_families(text)):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def expressions() -> Iterator[str]:
    """Every expression in the rules and the dashboard."""
    rules = yaml.safe_load((INTEGRATIONS / "prometheus" / "watch-rules.yml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    dashboard = json.loads((INTEGRATIONS / "grafana" / "watch.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable)


@pytest.mark.parametrize("expression", list(expressions()))
def test_what_rules_and_dashboard_ask_for_is_what_a_watch_answers(expression: str, served: dict[str, set[str]]) -> None:
    for name in NAME.findall(expression):
        assert name in served
        (braces,) = re.findall(rf"{name}(?:\{{(.*?)\}}|\b(?!\w))", expression)[:1]
        labels = set(re.findall(r"(\w+)=~?\"", braces))
        assert labels <= served[name], name


def test_every_alert_says_what_it_is_and_how_grave() -> None:
    rules = yaml.safe_load((INTEGRATIONS / "prometheus" / "watch-rules.yml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
