"""What the documentation says of the checks is what the checks say."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.suite import all_checks, table
from tests.document_checks import PATH, document
from tests.rules import Rule, rules, thresholds_of

BEGIN, END = "<!-- python -m clusterproof.plugins.suite -->\n", "<!-- end -->"


def test_the_table_of_checks_is_the_generated_one() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    told = text.partition(BEGIN)[2].partition(END)[0]
    assert told == table(), "run `python -m clusterproof.plugins.suite` and put its output into README.md"


def test_the_page_of_checks_is_the_generated_one() -> None:
    assert PATH.read_text(encoding="utf-8") == document(), "run `python -m tests.document_checks`"


def test_the_page_says_of_every_check_on_which_faults_it_is_proven() -> None:
    assert document().count("- **proven on**: none") == 0


def test_the_sentences_of_a_check_are_those_of_its_source() -> None:
    said = rules(all_checks()["gpu.nvlink_active"].function)
    assert Rule("fail", "NVLink … inactive; expected … active links") in said
    assert Rule("not applicable", "the driver does not tell NVLink states while MIG is on") in said


def test_the_thresholds_of_a_check_are_those_that_it_and_what_it_calls_ask_for() -> None:
    assert thresholds_of(all_checks()["host.root_volume"].function) == [
        "root.used_concern_percent",
        "root.used_fail_percent",
    ]
