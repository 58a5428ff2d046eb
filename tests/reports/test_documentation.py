"""The documents are right about a report's files, including the one that CONTRIBUTING adds."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import formats
from tests.builders.wheel import ROOT
from tests.reports.reported import result, run_of

MODULE, TEST = "clusterproof/reports/formats/owners.py", "tests/reports/test_owners.py"


def test_every_file_of_a_report_has_a_row_in_its_document() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    assert {each.file for each in formats.all_formats()} <= set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))


def test_the_file_that_contributing_adds_is_found_and_written_and_its_test_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL))
    (tmp_path / "owners.py").write_text(blocks[MODULE], encoding="utf-8")
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    monkeypatch.setitem(sys.modules, "clusterproof.reports.formats.owners", None)  # removed again after this test
    monkeypatch.delitem(sys.modules, "clusterproof.reports.formats.owners")
    formats.write_report(tmp_path, run_of([result("gpu.ecc", "gpu001", Verdict.FAIL)]))
    assert json.loads((tmp_path / "owners.json").read_text()) == {"hyperpod-node-debugger": 1}
    tests: dict[str, object] = {}
    exec(blocks[TEST], tests)
    (test,) = [test for name, test in tests.items() if name.startswith("test_")]
    assert callable(test)
    test()
