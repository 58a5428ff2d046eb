"""Kubernetes' finding about a node counts as the node's: in the first line, the page, each file, and exceptions."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.runs import ROOT, Runs
from tests.reports.read_back import of_pytests_junit, of_the_grid, of_the_suites
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytest_plugins = ["pytester"]
pytestmark = needs_kubernetes
CHECK = "control_plane.k8s_node_takes_pods"
NODES = {"gpu021": Verdict.FAIL, "gpu022": Verdict.NOT_APPLICABLE, "gpu023": Verdict.PASS}
P5 = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
EXCEPTION = f"""
[disabled."{CHECK}"]
reason = "held for the vendor"
until = {date.today() + timedelta(days=9):%Y-%m-%d}
nodes = "gpu022"
"""


def test_a_finding_is_of_its_node_in_every_form_and_a_policy_excuses_it_by_node(
    kubernetes: Bed, runs: Runs, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text(EXCEPTION)
    folder = tmp_path / "report"
    with (
        kubernetes.node("gpu021", labels=P5, spec={"unschedulable": True}),
        kubernetes.node("gpu022", labels=P5, spec={"unschedulable": True}),
        kubernetes.node("gpu023", labels=P5),
    ):
        shown = runs.run(
            *("--cluster", "k8s:bed", "--policy", str(tmp_path / "policy.toml"), "-m", "preflight"),
            *("--report", str(folder), "--junitxml", str(folder / "pytest.xml"), "-k", "k8s_node_takes_pods"),
            str(ROOT / "checks" / "control_plane"),
        )
    shown.stdout.fnmatch_lines(["RESTORE SERVICE  gpu021 (k8s_node_takes_pods)"])
    expected = {(CHECK, name, verdict.value) for name, verdict in NODES.items()}
    assert set(of_the_grid(folder)) == set(of_pytests_junit(folder)) == expected
    assert expected >= set(of_the_suites(folder)) >= {(CHECK, "gpu021", "fail")}
