"""What findings need besides their own fact: rows of checks and collectors that there are, of a few kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof import checks
from clusterproof.plugins.catalog.needs import Need, kinds, needs, needs_of
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
