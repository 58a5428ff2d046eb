"""`clusterproof checks` and `clusterproof explain`: describe the packaged checks, offline and without a run."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from clusterproof.plugins.catalog import thresholds
from clusterproof.plugins.catalog.nvidia import Xid, xid, xids
from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE, OneLineParser
from clusterproof.plugins.core.result import SUBSYSTEMS, split_message
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks, example_of, marks_of, when
from clusterproof.plugins.evaluation.check import WHOLE_SUBJECTS, Check
from clusterproof.plugins.evaluation.rules import Rule, rules, thresholds_of
from clusterproof.plugins.evidence.cluster import NOT_OF_AWS, SLURM_COLLECTOR
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS as OF_KUBERNETES
from clusterproof.reports import OF_HYPERPOD, skill_of

MAX_WIDTH = 110
WHEN = {  # for an Xid, by its verdict in the catalogue
    "none": "never a finding",
    "concern": "concern, from the first one on",
    "fail": "fail, from the first one on, until a reset of the GPU or a reboot",
    "repeat-concern": "concern, where it repeats on one GPU",
    "repeat-fail": "concern, and fail where it repeats on one GPU",
    "by-remap": "concern, and fail while the GPU's row remapping is pending or has failed",
    "by-severity": "by the word in its line: fail where it says Fatal, nothing where Nonfatal, else concern",
    "by-text": "by the recovery action that its line names",
    "unless-no-reset": "fail; concern where its line says that no reset is due (RST: No, D-RST: No)",
    "by-reset": "fail where its line says that a reset is due (RST: Yes, D-RST: Yes, a fatal error), else nothing",
}
OWN = {"policy": "this suite's own rule", "proposal": "a proposal of this suite"}  # our own sources
_XID = re.compile(r"xid[ :=]?(\d{1,4})", re.IGNORECASE)
LABEL = 16


def checks_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof checks`."""
    parser = OneLineParser(prog="clusterproof checks", description="The packaged checks, a line for each.")
    parser.add_argument("-m", metavar="MARKS", default="", help="those that `-m MARKS` would choose: 'prolog and gpu'")
    return parser


def explain_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof explain`."""
    parser = OneLineParser(
        prog="clusterproof explain",
        description="What a check or an Xid means, what is said and when, what to do then, and whose it is: offline.",
    )
    parser.add_argument(
        "name",
        nargs="+",
        metavar="CHECK",
        help="as reports have it: gpu.no_xid; or no_xid, or test_no_xid; or xid:79",
    )
    return parser


def checks(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what to print: a line for each check. Raises SystemExit where argparse does."""
    marks = checks_parser().parse_args(arguments).m
    try:
        chosen = [check for check in all_checks().values() if _has(check, marks)]
    except SyntaxError as wrong:
        expected = "expected marks with and, or, not and brackets (clusterproof --markers lists them)"
        return BAD_COMMAND_LINE, f"clusterproof checks: -m {marks!r}: {wrong.msg}; {expected}\n"
    if not chosen:
        return (
            BAD_COMMAND_LINE,
            f"clusterproof checks: no check has the marks {marks!r}; clusterproof --markers lists them\n",
        )
    return 0, "\n".join(_listed(chosen)) + "\n"


def explain(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what to print: all that is known of some checks. Raises SystemExit where argparse does."""
    pages: list[str] = []
    for word in explain_parser().parse_args(arguments).name:
        code = _XID.fullmatch(word)
        pages_of_word = [xid_page(xid(int(code[1])))] if code else [page(check) for check in named(word)]
        if not pages_of_word:
            near = nearest(word, [*all_checks(), *map(_name, all_checks())])
            expected = "clusterproof checks lists all; an Xid is xid:79"
            return BAD_COMMAND_LINE, f"clusterproof explain: no check is called {word!r:.80}{near}; {expected}\n"
        pages += ["\n".join(lines) for lines in pages_of_word]
    return 0, "\n\n".join(pages) + "\n"


def named(word: str) -> list[Check]:
    """The checks with this id, or with this name in any subsystem; else those whose names begin with it."""
    name = word.rpartition("::")[2].partition("[")[0].removeprefix("test_")
    every = all_checks()
    if not name:
        return []
    checks = [every[word]] if word in every else [every[known] for known in every if _name(known) == name]
    return checks or [every[known] for known in every if _name(known).startswith(name)]


def xid_page(row: Xid) -> Iterator[str]:
    """All that is known about an Xid, in lines for a terminal."""
    yield f"Xid {row.code}: {row.name}"
    yield from _rows("kind", row.kind)
    yield from _rows("verdict", WHEN[row.verdict])
    yield from _rows("do", row.action)
    yield from _rows(
        "cleared by", ", ".join(f"Xid {other.code}" for other in xids().values() if row.code in other.clears)
    )
    yield from _rows("source", OWN.get(row.source, row.source))
    yield from _rows("others say", row.disagreement)
    yield from _rows("check", "gpu.no_xid")


def page(check: Check) -> Iterator[str]:
    """All that is known about one check, in lines for a terminal."""
    about = check.route
    yield f"{about.check}: {about.title}"
    yield from _rows("means", about.meaning)
    yield from _rows("do", f"{about.action}: {about.remedy}" if about.remedy else "")
    yield from _rows("by hand", about.evidence)
    skill = skill_of(about)
    yield from _rows("owner", "; ".join(filter(None, (about.team, f"{OF_HYPERPOD} {skill}" if skill else ""))))
    yield from _rows("runs", when(check).replace("`", ""))
    yield from _rows("reads", read_by(check).replace("`", ""))
    seen, healthy = split_message(example_of(about.check))
    yield from _rows("for example", seen)
    yield from _rows("healthy", healthy)
    for rule in worst_first(rules(check.function)):
        yield from _rows(rule.verdict, rule.sentence)
    for threshold in compared_with(check):
        yield from _rows("threshold", threshold)


def read_by(check: Check) -> str:
    """What a check reads: node collectors, control-plane answers, measurements; names are in backticks."""
    if check.needs_pairs:
        return "measurements of pairs of nodes" + ("; once for each pair" if check.is_of_pair else "")
    if check.is_of_run:
        return "the files of a training run" + ("; once for each rank" if check.subject == "rank" else "")
    what = f"{', '.join(f'`{collector}`' for collector in sorted(check.collectors))}" or "whether the node answered"
    if check.is_of_cluster:
        control_collectors = ", ".join(f"`{collector}`" for collector in sorted(check.control_collectors))
        what = f"of {_control_planes(check)} {control_collectors}" + (
            f"; of the nodes {what}" if check.collectors else ""
        )
    return what if check.is_of_member or check.subject in WHOLE_SUBJECTS else f"{what}; once for each `{check.subject}`"


def _control_planes(check: Check) -> str:
    """The control planes that a check of the cluster asks."""
    if check.control_collectors == {SLURM_COLLECTOR}:
        return "Slurm"
    of_kubernetes, of_aws = check.control_collectors & OF_KUBERNETES, check.control_collectors - NOT_OF_AWS
    return " and ".join([*(["Kubernetes"] if of_kubernetes else []), *(["AWS"] if of_aws else [])])


def worst_first(rules: list[Rule]) -> list[Rule]:
    """A check's messages, fails first."""
    ranks = {verdict.value: verdict.rank for verdict in Verdict}
    return sorted(rules, key=lambda rule: ranks[rule.verdict])


def compared_with(check: Check) -> Iterator[str]:
    """The thresholds that a check compares with: name, value, unit and source."""
    for name in thresholds_of(check.function):
        row = thresholds()[name]
        yield f"{name}: {row.value:g} {row.unit} ({OWN.get(row.source, row.source)})"


def _name(check: str) -> str:
    return check.partition(".")[2]


def _has(check: Check, marks: str) -> bool:
    from clusterproof.plugins.suite.selection import chooses  # imports pytest

    return not marks or chooses(marks, marks_of(check))


def _listed(chosen: Sequence[Check]) -> Iterator[str]:
    ordered = sorted(chosen, key=lambda check: (SUBSYSTEMS.index(check.route.subsystem), check.route.check))
    width = max(len(check.route.check) for check in ordered)
    for check in ordered:
        yield f"{check.route.check:<{width}}  {check.route.title} ({when(check).replace('`', '')})"


def _rows(label: str, text: str) -> list[str]:
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    indent = " " * (LABEL + 2)
    line_width = max(width, LABEL + 32)
    return textwrap.wrap(
        text,
        line_width,
        initial_indent=f"  {label:<{LABEL}}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
