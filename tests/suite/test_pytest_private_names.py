"""The private names of pytest that the suite uses where no public one exists; a pytest without one fails here."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
USED = {
    "_pytest.mark.MarkMatcher": "what `-m` leaves out is known before 10,000 nodes times all checks are made items",
    "_pytest.mark.expression.Expression": "the same words of `-m` are read by what reads them in pytest",
    "_pytest.pathlib.import_path": "tests of other authors are looked at for what they need before pytest imports them",
    "_pytest.pathlib.ImportMode": "in the way that their run imports them",
    "_pytest.junitxml.xml_key": "the plugin of --junitxml, whose elements get our words, is kept under it alone",
    "_id": "pytest 9.1 takes ids of items apart by it: without, --lf does not know them",
    "_fixturemanager": "which fixtures a check of another author names is known before it is set up",
    "_numcollected": "the terminal counts what was collected; one item stands for all nodes until then",
    "_file": "a terminal that is closed is to end no run: nobody may choose where pytest's writer writes",
    "_tw": "the terminal reporter's own writer, which is another than the one that Config gives",
    "_nodeid": "before pytest 9.1 an item's id is made when it is asked for: 600,000 texts would take 1 GB",
    "_store": "the stash of an item, made when it is asked for",
    "_report_keyboardinterrupt": "a signal is the summary's first line; pytest would name the line of code that it met",
    "_report_sections": "what an item has printed, made when it is asked for",
}
BEFORE_9_1 = {"_nodeid"}
OWN = ("self", "cls")
FOLDERS = ("command_line", "options", "suite")  # packages that use pytest


def parsed() -> list[ast.Module]:
    files = [file for folder in FOLDERS for file in sorted((PLUGINS / folder).rglob("*.py"))]
    every = (*files, PLUGINS / "cluster.py", PLUGINS / "core" / "marks.py")
    return [ast.parse(file.read_text(encoding="utf-8")) for file in every]


def used() -> set[str]:
    """Names that begin with _, of objects outside the suite, and imports from _pytest."""
    names: set[str] = set()
    for node in (node for module in parsed() for node in ast.walk(module)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if not (isinstance(node.value, ast.Name) and node.value.id in OWN):
                names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("_pytest"):
            names.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Constant) and node.value in ("_nodeid", "_store", "_report_sections"):
            names.add(node.value)
    return names - {"_exit"}  # os._exit


@pytest.mark.long
def test_no_private_name_is_used_without_a_reason() -> None:
    assert used() == set(USED)


@pytest.mark.parametrize("name", [name for name in USED if "." in name])
def test_a_name_of_a_module_is_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(import_module(module), attribute)


def test_the_names_of_objects_are_there(request: pytest.FixtureRequest) -> None:
    reporter = request.config.pluginmanager.get_plugin("terminalreporter") or pytest.TerminalReporter(request.config)
    has = {name for owner in (request.node, request.session, reporter, reporter._tw) for name in dir(owner)}
    has |= {name for owner in type(request.node).__mro__ for name in getattr(owner, "__slots__", ())}
    assert {name for name in USED if "." not in name} - has <= BEFORE_9_1
