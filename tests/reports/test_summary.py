"""The terminal summary as operators read it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.summary import MAX_NODES, MAX_WORDS, summary
from tests.builders.recordings import boot, gpu, node, nvml, unreached
from tests.builders.runs import DEVICES, LIGHT, Runs, all_verdicts, saying

GOLDEN = """\
============================================== small ===============================================

INVESTIGATE   gpu[001-006] (word_of_gpu, word)
CANNOT REACH  gpu[009-010] (refused)
NOT PROVEN    gpu008 (word)
FIT           1 of 10 nodes
5 of 6 failed nodes share one finding: A GPU says a wrong word

FAIL        A GPU says a wrong word: 5 of 10 nodes (gpu[001-005]), 6 GPUs → network
            5 of 10 nodes alike: probably configuration, not hardware
            gpu[001-004]: GPU 1: the word is bad; expected pass
            gpu005: GPU 0: the word is worse; expected pass
            gpu005: GPU 2: the word is worst; expected pass
            check:  gpu.word_of_gpu

FAIL        The word is wrong: 1 of 10 nodes (gpu006) → hardware
            gpu006: the word is bad; expected pass
            see it: uname -r
            do:     Say another.
            check:  host.word

INCOMPLETE  gpu[009-010]: unreachable: refused (2 checks)
              gpu009:22 refuses the connection
              gpu010:22 refuses the connection

INCOMPLETE  gpu008: the word was not heard (host.word)

CONCERN     The word is wrong: 1 of 10 nodes (gpu007) → hardware
            gpu007: the word is odd; expected a good one
            see it: uname -r
            do:     Say another.
            check:  host.word

10 nodes: 1 fit, 6 failed, 3 not proven (evidence is missing)
"""


def saying_by_gpu(name: str, *gpu_words: str, kernel: str = "pass") -> NodeEvidence:
    """A node that reports a word itself, and one by each of its GPUs."""
    gpus = (gpu(index, word=word) for index, word in enumerate(gpu_words))
    return node(name, boot=boot(kernel, hostname=name), nvml=nvml(*gpus))


def shown(run: pytest.RunResult) -> list[str]:
    """The suite's own part of a run's output."""
    begin = next(number for number, line in enumerate(run.outlines) if "= small =" in line)
    end = max(number for number, line in enumerate(run.outlines) if re.match(r"\d+ nodes?: ", line))
    return run.outlines[begin : end + 1]


def lines(results: list[Result], width: int = 100, verbose: bool = False) -> list[str]:
    return [line.text for line in summary(results, PACKAGED, width, verbose)]


def test_the_summary_of_a_small_cluster(runs: Runs) -> None:
    runs.checks(test_gpu=DEVICES, test_it=LIGHT)
    others = ["bad", "concern", "incomplete"]
    nodes = [
        *(saying_by_gpu(f"gpu{number:03d}", "pass", "bad") for number in range(1, 5)),
        saying_by_gpu("gpu005", "worse", "pass", "worst"),
        *(saying_by_gpu(f"gpu{number:03d}", "pass", kernel=word) for number, word in enumerate(others, start=6)),
        unreached("gpu009"),
        unreached("gpu010"),
    ]
    assert shown(runs.over(nodes)) == GOLDEN.splitlines()


WORDS = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=12)
TEXT = st.lists(WORDS, max_size=12).map(" ".join)
RESULTS = st.lists(
    st.builds(
        Result,
        check=WORDS,
        node=st.from_regex(r"[a-z]{1,3}[0-9]{1,4}", fullmatch=True),
        verdict=st.sampled_from(Verdict),
        title=TEXT,
        message=TEXT,
        cause=TEXT,
        owner=WORDS,
        evidence=TEXT,
        remedy=TEXT,
    ),
    max_size=12,
)


@pytest.mark.long
@given(RESULTS, st.integers(60, 200))
def test_no_line_is_wider_than_the_terminal_unless_it_is_one_word(results: list[Result], width: int) -> None:
    for line in lines(results, width, verbose=True):
        assert len(line) <= width or len(line.split()) <= 2


@pytest.mark.long
@given(RESULTS, st.integers(60, 200))
def test_wrapping_loses_no_word(results: list[Result], width: int) -> None:
    wide, narrow = lines(results, 100_000, verbose=True), lines(results, width, verbose=True)
    assert "".join("".join(narrow).split()) == "".join("".join(wide).split())


@pytest.mark.parametrize("width", [60, 79, 80, 100, 132, 200])
def test_a_run_fits_its_terminal(runs: Runs, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    runs.checks(test_it=LIGHT)
    run = runs.over([evidence for evidence in all_verdicts() if evidence.node != "gpu006"])  # it names a long path
    assert max(map(len, shown(run))) <= width


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_long_nodeset_goes_on_under_its_own_column_and_is_never_cut(width: int) -> None:
    names = [f"gpu{number:04d}" for number in range(0, 1000, 2)]
    results = [Result("gpu.ecc", name, Verdict.FAIL, title="It is bad", action="replace") for name in names]
    results.append(Result("gpu.ecc", "gpu0001", Verdict.PASS))
    whole, short = lines(results, width, verbose=True), lines(results, width)
    assert max(map(len, whole + short)) <= width
    begin = next(at for at, line in enumerate(whole) if line.startswith("REPLACE  gpu[0000,"))
    assert all(line.startswith(f"{' ' * 9}0") for line in whole[begin + 1 : begin + 4])
    assert set(names) <= set(expand("".join(whole[begin:]).replace(" ", "")[len("REPLACE") :].partition("(")[0]))
    for text in ("".join(whole), "".join(short)):
        assert text.count("[") == text.count("]")
    assert re.search(r"gpu\[0000,[0-9, ]*\] and \d+ more\)", " ".join(short))


def test_without_v_a_long_story_is_cut_and_says_so() -> None:
    results = [Result("gpu.ecc", f"n{number}", Verdict.FAIL, message=f"{number} errors") for number in range(9)]
    assert "            … and 6 more; -v shows all" in lines(results)
    assert not any("more; -v" in line for line in lines(results, verbose=True))


@pytest.mark.long
def test_names_that_do_not_fold_do_not_fill_the_screen() -> None:
    names = [f"node-{'x' * (number % 7)}-{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(300)]
    results = [Result("gpu.ecc", name, Verdict.FAIL, title="It is bad", message="bad") for name in names]
    text = " ".join(lines(results, 100_000))
    listed = text.partition("FAIL        It is bad: 300 of 300 nodes (node-")[2]
    assert len(re.split(r" and \d+ more\)", listed)[0]) < MAX_NODES
    assert all(name in " ".join(lines(results, 100_000, verbose=True)) for name in names)


def test_a_message_without_end_does_not_fill_the_screen() -> None:
    results = [Result("gpu.ecc", "n1", Verdict.FAIL, message="A" * 4_000)]
    assert max(map(len, lines(results))) <= MAX_WORDS + 20


def test_control_characters_of_a_node_are_made_visible(runs: Runs) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\r\b\u202e\u2028\x9b31m"
    runs.checks(test_it=LIGHT, test_gpu=DEVICES)
    loud = node("gpu001", boot=boot(hostile), nvml=nvml(gpu(0, word=hostile, uuid=hostile)))
    silent = unreached("gpu002", detail=hostile)
    text = runs.over([loud, silent, saying("gpu003", "pass")], "-v").stdout.str()
    assert r"the word is \x1b[2J\x1b]0;owned\x07\r\x08\u202e\u2028\x9b31m; expected pass" in " ".join(text.split())
    assert {char for char in text if not char.isprintable()} == {"\n"}


def test_where_there_is_nothing_to_do_it_says_so() -> None:
    assert lines([Result("gpu.ecc", "n1", Verdict.PASS)])[:2] == ["NOTHING TO DO", "FIT  1 of 1 node"]


def test_nothing_is_said_where_nothing_ran() -> None:
    assert lines([]) == []
