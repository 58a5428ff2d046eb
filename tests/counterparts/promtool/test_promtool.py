"""The alert rules for a watch and a gate under Prometheus' own promtool; the dashboard's queries are valid PromQL."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT
from tests.counterparts import installed

pytestmark = installed.needs("promtool")

INTEGRATIONS = ROOT / "integrations"
RULES = [
    ("prometheus/watch-rules.yml", "watch-rules.test.yml", 7),
    ("kubernetes/chart/gate-rules.yaml", "gate-rules.test.yml", 7),
]


def promtool(*arguments: str, folder: Path) -> str:
    """promtool's output, which must report no problem."""
    program = installed.folder("promtool") / "usr" / "bin" / "promtool"
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("rules", "tests", "count"), RULES)
def test_each_rule_fires_when_it_should_and_not_otherwise(tmp_path: Path, rules: str, tests: str, count: int) -> None:
    shutil.copy(INTEGRATIONS / rules, tmp_path)
    shutil.copy(Path(__file__).with_name(tests), tmp_path)
    assert f"{count} rules found" in promtool("check", "rules", Path(rules).name, folder=tmp_path)
    assert "SUCCESS" in promtool("test", "rules", tests, folder=tmp_path)


def test_what_the_dashboard_asks_is_promql(tmp_path: Path) -> None:
    dashboard = json.loads((INTEGRATIONS / "grafana" / "watch.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [expression.replace("$__rate_interval", "5m").replace("$", "") for expression in expressions]
    rules = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "asked.yml").write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", "asked.yml", folder=tmp_path)
