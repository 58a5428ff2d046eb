"""The connection that CONTRIBUTING adds reaches nodes and is in --help, with only its module and two rows."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from clusterproof.plugins import inventory, transport
from clusterproof.plugins.command_line import overview
from clusterproof.plugins.command_line.overview import short_help
from clusterproof.plugins.core import kinds
from tests.builders.wheel import ROOT

pytestmark = pytest.mark.long

MODULE, TEST = "clusterproof/plugins/transport/docker.py", "tests/transport/test_docker.py"
ROWS = "the rows, in KINDS and in CONNECTIONS of clusterproof/plugins/core/kinds.py"
NAME = "clusterproof.plugins.transport.docker"


def test_the_connection_that_contributing_adds_is_found_and_in_help_and_its_tests_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# ([^\n]+)\n(.*?)```", page, re.DOTALL))
    (tmp_path / "docker.py").write_text(blocks[MODULE], encoding="utf-8")
    monkeypatch.setattr(transport, "__path__", [*transport.__path__, str(tmp_path)])
    kind, connection = (eval(row, vars(kinds)) for row in blocks[ROWS].strip().splitlines())
    for reader in (inventory, overview):
        monkeypatch.setattr(reader, "KINDS", (*kinds.KINDS, kind))
    monkeypatch.setitem(kinds.CONNECTIONS, "docker", connection)
    tests: dict[str, object] = {}
    exec(blocks[TEST], tests)
    try:
        run = [test for name, test in tests.items() if name.startswith("test_") and inspect.isfunction(test)]
        for test in run:
            test(*((tmp_path, monkeypatch) if inspect.signature(test).parameters else ()))
        assert len(run) == 2
        assert f"\n  docker:NAME,…                        {kind.help}\n" in short_help(120)
    finally:
        sys.modules.pop(NAME, None)
