"""The documentation of checks matches them, and its command lines can be pasted into zsh too."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from clusterproof.plugins.catalog import rows, thresholds
from clusterproof.plugins.evaluation.all_checks import EXAMPLES, all_checks
from clusterproof.plugins.evaluation.index import FILE, written
from clusterproof.plugins.evaluation.rules import Rule, rules, thresholds_of
from scripts.generators import examples, site
from scripts.generators.checks import PATH, documents
from scripts.generators.messages import PATH as MESSAGES
from scripts.generators.messages import messages
from tests.builders.wheel import ROOT

HOW = "run `scripts/generate`"


def written_pages() -> list[Path]:
    """Every page written by hand."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.any_user
@pytest.mark.parametrize("page", written_pages(), ids=lambda page: page.name)
def test_links_lead_to_what_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not _leads_somewhere(page.parent / link)] == []


@cache
def made() -> frozenset[Path]:
    """The pages that `make docs` generates."""
    return frozenset(site.DOCS / name for name in site.pages())


def _leads_somewhere(path: Path) -> bool:
    """Whether a link leads to a file, or to a page that `make docs` generates."""
    return path.exists() or path.resolve() in made()


@pytest.mark.any_user
def test_the_rooms_that_the_architecture_names_are_there() -> None:
    paths = re.findall(r"`((?:[\w.]+/)+[\w.]*)`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert len(paths) > 20
    assert [path for path in paths if not ((ROOT / path).exists() or (ROOT / "plugins" / path).exists())] == []


@pytest.mark.any_user
@pytest.mark.long
def test_the_pages_of_checks_are_the_generated_ones() -> None:
    pages = [PATH, *PATH.with_suffix("").iterdir()]
    assert {path: path.read_text(encoding="utf-8") for path in pages} == documents(), HOW


@pytest.mark.any_user
@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "words", "is_whole"),
    [
        ("host.zombies", "1500 zombies; expected at most 1000", True),
        ("host.zombies", "zombies; expected at most 1000", False),
        ("host.job_leftovers", ", by its environment of job 41; expected none", False),
        ("host.thp", "transparent huge pages never; expected madvise as on 3 of 4 nodes", True),
        ("network.libfabric_efa", "31 EFA domains; expected 32, one for each device", True),
        ("network.libfabric_efa", "31 EFA domains; expected 32", False),
        ("gpu.gpu_answers", "GPU 3: the driver says GPU_IS_LOST; expected an answer", True),
    ],
)
def test_a_part_of_a_message_is_no_example(check: str, words: str, is_whole: bool) -> None:
    assert examples.is_whole(check, words) is is_whole


@pytest.mark.any_user
@pytest.mark.long
def test_the_examples_of_findings_are_the_generated_ones() -> None:
    assert EXAMPLES.read_text(encoding="utf-8") == examples.document(), HOW


@pytest.mark.any_user
@pytest.mark.long
def test_every_message_stands_on_the_page_of_messages() -> None:
    assert MESSAGES.read_text(encoding="utf-8") == messages(), HOW


@pytest.mark.any_user
def test_the_page_of_checks_lists_every_threshold() -> None:
    _, _, table = PATH.read_text(encoding="utf-8").partition("## Thresholds")
    listed = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    assert set(listed) == set(thresholds()), HOW


@pytest.mark.any_user
def test_the_index_of_the_checks_is_the_generated_one() -> None:
    assert Path(FILE).read_text(encoding="utf-8") == written(), HOW


@pytest.mark.any_user
@pytest.mark.long
def test_the_catalogue_that_is_read_fast_is_the_generated_one() -> None:
    assert Path(rows.PARSED).read_text(encoding="utf-8") == rows.written(), HOW


@pytest.mark.any_user
@pytest.mark.long
def test_the_pages_say_of_every_check_on_which_faults_it_is_proven() -> None:
    assert "".join(documents().values()).count("- **proven on**: none") == 0


KNOWN_TO_ALL = {"CPU", "CPUs", "GPU", "NVMe", "PCIe", "VPC"}
ABBREVIATION = re.compile(r"\b[A-Z]\w*[A-Z]\w*")


@pytest.mark.any_user
def test_the_glossary_has_each_abbreviation_in_the_title_of_a_check() -> None:
    abbreviations = {word for check in all_checks().values() for word in ABBREVIATION.findall(check.route.title)}
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert {word for word in abbreviations - KNOWN_TO_ALL if word.removesuffix("s") not in glossary} == set()


@pytest.mark.any_user
def test_the_sentences_of_a_check_are_those_of_its_source() -> None:
    sentences = rules(all_checks()["gpu.nvlink_active"].function)
    assert Rule("fail", "NVLink … inactive; expected … active links") in sentences
    assert Rule("not applicable", "the driver does not report NVLink states while MIG is on") in sentences


@pytest.mark.any_user
def test_the_thresholds_of_a_check_are_those_that_it_and_what_it_calls_ask_for() -> None:
    assert thresholds_of(all_checks()["host.root_volume"].function) == [
        "root.used_concern_percent",
        "root.used_fail_percent",
        "space.used_concern_percent",
        "space.used_fail_percent",
    ]


def test_so_are_those_whose_names_a_table_completes() -> None:
    assert thresholds_of(all_checks()["host.open_files"].function) == [
        "limits.nofile",
        "processes.open_files_percent",
    ]
    lost = thresholds_of(all_checks()["network.ib_lost_packets"].function)
    assert {"infiniband.packet_seq_err_per_hour", "infiniband.rp_cnp_ignored_per_hour"} <= set(lost)
    assert "infiniband.symbol_errors_per_hour" not in lost


PLACES = ("README.md", "docs/*.md", "integrations/**/*.md", "scripts/*")
DOCUMENTS = sorted(path for place in PLACES for path in ROOT.glob(place) if path.is_file())
COMMAND = re.compile(
    r"(?:^|`|\s)((?:\.venv/bin/)?(?:pytest|clusterproof) --?\S.*|(?:\.venv/bin/)?clusterproof [a-z]+ .*)$"
)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\$[?*@]")  # also a shell script's own variables


def unquoted(line: str) -> list[str]:
    """The words in a command line that zsh would take for file name patterns."""
    match = COMMAND.search(line.partition("  #")[0])
    command = QUOTED.sub("", match[1].partition("`")[0]) if match else ""
    return [word for word in command.split() if re.search(r"[*?]|\[[^\]]+\]", word) and not word.startswith("[")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_command_line_of_a_document_has_brackets_without_quotes(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if unquoted(line)] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("    pytest --cluster ssh:gpu[001-128] -m perf", ["ssh:gpu[001-128]"]),
        ("    pytest --cluster 'ssh:gpu[001-128]'", []),
        ("- `clusterproof check ssh:gpu[1-2]` does", ["ssh:gpu[1-2]"]),
        ("  clusterproof checks [-m MARKS]", []),
    ],
)
def test_what_is_looked_for_is_found(line: str, words: list[str]) -> None:
    assert unquoted(line) == words
