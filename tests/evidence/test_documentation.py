"""The example fact in CONTRIBUTING, from the command that prints it to its check's verdict."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins import evidence
from clusterproof.plugins.agent import tools
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.redaction import kinds
from scripts import scaffold
from scripts.generators.evidence import PATH, descriptions, document
from tests.builders.recordings import boot, node
from tests.builders.runs import ROOT, Runs

FOLDER = "clusterproof/plugins/evidence/tuned"
CHECK, FAULT = "clusterproof/checks/host/test_tuned_profile.py", "tests/faults/tuned_profile.py"
PACKAGE = "clusterproof.plugins.evidence.tuned"


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The page's files by path; the evidence folder is put beside the package's own."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", page, re.DOTALL))
    folder = tmp_path / "evidence" / "tuned"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "collect.py", "facts.py", "redaction.toml"):
        (folder / name).write_text(blocks[f"{FOLDER}/{name}"], encoding="utf-8")
    monkeypatch.setattr(evidence, "__path__", [*evidence.__path__, str(folder.parent)])
    yield blocks
    for module in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[module]


def fault_of(blocks: dict[str, str]) -> Any:
    names: dict[str, Any] = {}
    exec(blocks[FAULT], names)
    (fault,) = names["FAULTS"]
    return fault


def collected(blocks: dict[str, str], script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The collector's report with this command."""
    program = tmp_path / "tuned-adm"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(tools, "find", lambda *_: str(program))
    monkeypatch.setattr(tools, "user_of", lambda *_: __import__("os").geteuid())
    names: dict[str, Any] = {}
    exec(blocks[f"{FOLDER}/collect.py"], names)
    return names["read"](Node())


def test_the_files_that_contributing_shows_are_those_that_the_script_writes(blocks: dict[str, str]) -> None:
    written = {*scaffold.evidence("tuned"), *scaffold.check("host.tuned_profile")}
    assert {path for path in blocks if "tuned" in path} == written


def test_the_fault_that_contributing_adds_fails_its_check_and_a_healthy_node_passes(
    blocks: dict[str, str], runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = fault_of(blocks)
    script = fault.put(fault.base()).tools["tuned-adm"]
    answers = {
        name: collected(blocks, text, tmp_path, monkeypatch)
        for name, text in {"sick": script, "well": script.replace("powersave", "throughput-performance")}.items()
    }
    (runs.folder / "test_tuned_profile.py").write_text(blocks[CHECK], encoding="utf-8")
    runs.over([node(name, boot=boot(hostname=name), tuned=value) for name, value in answers.items()])
    assert {result.node: (result.check, result.verdict) for result in runs.results} == {
        "sick": ("host.tuned_profile", fault.expect["host.tuned_profile"]),
        "well": ("host.tuned_profile", Verdict.PASS),
    }
    assert fault.words in next(result.message for result in runs.results if result.node == "sick")


def test_what_is_declared_beside_a_collector_is_known_to_be_harmless(
    blocks: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert blocks
    monkeypatch.setattr(kinds, "EVIDENCE", str(tmp_path / "evidence"))
    kinds._schemas.cache_clear()
    try:
        assert [kinds.schema_of("tuned").at(key).kind for key in ("exit", "output")] == ["number", "text"]
        assert kinds.schema_of("boot").at("kernel").kind == "version"
    finally:
        kinds._schemas.cache_clear()


def test_a_collector_that_describes_itself_has_a_section_and_one_described_by_hand_keeps_its_own(
    blocks: dict[str, str],
) -> None:
    page, described = PATH.read_text(encoding="utf-8"), dict(descriptions())
    assert document(page, described) == page, "expected what scripts/generate writes"
    doc = re.findall(r'^"""(.*?)\n"""', blocks[f"{FOLDER}/collect.py"], re.DOTALL)[0]
    text = document(page, {**described, "boot": "Boot: elsewhere.\n\n`{}`", "tuned_again": doc})
    assert '\n### `tuned_again` — `tuned-adm active`\n`{"command"' in text
    assert "elsewhere" not in text
    assert document(text, described) == page


def test_a_collector_that_does_not_say_where_it_reads_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the docstring of lost begins .*expected WHAT IT IS: WHERE"):
        document(PATH.read_text(encoding="utf-8"), {"lost": "The end of a log.\n\n`{}`."})
