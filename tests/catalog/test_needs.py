"""Rows of needs.toml and kernel_log.toml refer to existing checks, collectors, verdicts, scopes and actions."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof import checks
from clusterproof.plugins.catalog.log_forms import LogForm, log_forms
from clusterproof.plugins.catalog.needs import Need, kinds, needs, needs_of
from clusterproof.plugins.core.result import ACTIONS
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.needs import node_collectors
from tests.laws.removal import explains

OTHER_PIECES = ("its peers", "the beginning of the kernel log")
NEED = Need(("gpu.a",), ("platform", "pci.devices[].class"), "identity", "what it is", "policy", finding="expected 8")


@pytest.mark.parametrize("name", needs())
def test_a_row_is_of_checks_and_facts_that_there_are(name: str) -> None:
    row = needs()[name]
    assert set(row.checks) <= node_checks().keys()
    facts = [fact for fact in row.facts if fact not in OTHER_PIECES and "file " not in fact]
    assert {fact.partition(".")[0] for fact in facts} <= node_collectors()


def test_the_words_by_which_a_row_knows_its_finding_are_words_of_the_product() -> None:
    files = Path(checks.__path__[0]).parent.rglob("*.*")
    texts = [file for file in files if file.suffix in (".py", ".toml") and file.name != "needs.toml"]
    product = "".join(file.read_text("utf-8") for file in texts)
    assert [name for name, row in needs().items() if row.finding not in product] == []


def test_reasons_are_of_few_kinds() -> None:
    assert {row.kind for row in needs().values()} == kinds().keys()
    assert len(kinds()) <= 5


@pytest.mark.parametrize(
    ("check", "fact", "message", "expected"),
    [
        ("gpu.a", "platform", "7; expected 8", True),
        ("gpu.a", "platform.vendor", "7; expected 8", True),
        ("gpu.a", "platform_of_another", "7; expected 8", False),
        ("gpu.a", "pci.devices[].class", "7; expected 8", True),
        ("gpu.a", "pci.devices", "7; expected 8", False),
        ("gpu.a", "platform", "7 as on most nodes", False),
        ("gpu.b", "platform", "7; expected 8", False),
    ],
)
def test_a_row_explains_only_its_checks_without_its_facts(check: str, fact: str, message: str, expected: bool) -> None:
    assert explains(NEED, check, fact, message) is expected


def test_the_rows_of_a_check_are_found_by_its_id() -> None:
    assert needs()["other_nodes"] in needs_of("host.thp")
    assert needs_of("node.reachable") == []


DECIDED_ELSEWHERE = "by "  # prefix of verdicts that need more than the line
VERDICTS = ("fail", "concern", "none")
SCOPES = (
    *("gpu", "nvswitch", "nic", "link", "pcie", "cpu", "memory"),
    *("node", "disk", "filesystem", "server", "neuron", "process"),
)


def wrong(form: LogForm) -> str:
    """What is wrong with a row, or empty."""
    if not form.verdict.startswith((*VERDICTS, DECIDED_ELSEWHERE)) or form.scope not in SCOPES:
        return f"{form.verdict!r} of {form.scope!r}; expected one of {', '.join(VERDICTS)} and of {', '.join(SCOPES)}"
    if form.verdict == "fail" and (form.is_of_user or form.action not in ACTIONS):
        return f"it fails a node, by {form.who or 'the kernel'}: {form.action!r}; expected no user, and an action"
    unknown = [name for name in (*form.cleared_by, *form.after) if name not in log_forms()]
    return f"no form is called {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("form", log_forms().values(), ids=lambda form: form.name)
def test_every_form_is_right(form: LogForm) -> None:
    assert not wrong(form)


def test_every_scope_has_a_form() -> None:
    assert {form.scope for form in log_forms().values()} == set(SCOPES)
