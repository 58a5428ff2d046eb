"""`junit.xml`: a suite for each subsystem, with a case for each check and its nodes in the body.

With `--junit-cases=node` it is one suite with a case for each node. Names are the ids of checks, or nodes, whatever the
verdict, so that tools that keep a history by name find them again. A check's case has its `file` and `line`, unless
`junit_family` is `xunit2`: Jenkins' schema (junit-10.xsd) does not allow them. `--junitxml` is pytest's own file, with
a case for each check and node: for a thousand nodes, more than Jenkins can show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.result import SUBSYSTEMS, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import MAX_ATTRIBUTE, legal, owner_of
from clusterproof.reports.findings import remedied_like, shortened
from clusterproof.reports.formats import Format
from clusterproof.reports.run import Run
from clusterproof.reports.to_do import to_do_line

MAX_NODES = 300  # characters of the nodeset in a name
MAX_OF_ALL_NODES = 100_000
MAX_LINES = 100  # of what was seen
MAX_WORDS = 2_000  # characters of a line
OTHER = "other"  # the suite of checks without a subsystem
BY_NODE = "nodes"  # the suite of all nodes
_TAGS = {Verdict.FAIL: "failure", Verdict.INCOMPLETE: "error", Verdict.NOT_APPLICABLE: "skipped"}

_ORDER = ("failure", "error", "", "skipped")  # the worst first
_NOTABLE = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN)  # described in full

Cases = dict[str, list[Result]]  # by check, or by node


def suites(run: Run) -> str:
    """The results of a run for Jenkins, GitLab and GitHub Actions."""
    by_suite: dict[str, Cases] = defaultdict(lambda: defaultdict(list))
    for result in run.results:
        if run.junit_cases == "node":
            by_suite[BY_NODE][result.node].append(result)
        else:
            by_suite[result.subsystem or OTHER][result.check].append(result)
    not_reached = unreached_nodes(run.results)
    known = [name for name in SUBSYSTEMS if name in by_suite]
    names = [*known, *sorted(by_suite.keys() - set(known))]
    root = Element("testsuites", name=legal(f"clusterproof {run.cluster.name}"))
    for name in names:
        root.append(_suite(name, by_suite[name], run, not_reached))
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, "unicode")}\n'


def _suite(name: str, cases: Cases, run: Run, not_reached: Collection[str]) -> Element:
    count = Counter(_tag(results, not_reached) for results in cases.values())
    seconds = sum(result.duration_s for results in cases.values() for result in results)
    suite = Element(
        "testsuite",
        name=legal(f"clusterproof.{name}"),
        tests=str(len(cases)),
        failures=str(count["failure"]),
        errors=str(count["error"]),
        skipped=str(count["skipped"]),
        time=f"{seconds:.3f}",
        timestamp=f"{run.began:%Y-%m-%dT%H:%M:%S}",
    )
    results_of_suite = [result for results in cases.values() for result in results]
    properties = SubElement(suite, "properties")
    for key, value in _properties(results_of_suite, run):
        SubElement(properties, "property", name=key, value=legal(within(value, MAX_NODES)))
    for case, results in sorted(cases.items()):
        suite.append(_case(case, results, name, not_reached, run.sources.get(case)))
    return suite


def _tag(results: Iterable[Result], not_reached: Collection[str]) -> str:
    """The JUnit tag for the worst of them."""
    return min((_tag_of(result, not_reached) for result in results), key=_ORDER.index)


def _tag_of(result: Result, not_reached: Collection[str]) -> str:
    """The tag of a result; for an unreachable node one check is an error, and the others are not."""
    is_skipped = result.node in not_reached and result.is_of_unreachable and not result.reports_unreachable
    return "skipped" if is_skipped else _TAGS.get(result.verdict, "")


def unreached_nodes(results: Iterable[Result]) -> set[str]:
    """The nodes with a result that says that they were not reached."""
    return {result.node for result in results if result.reports_unreachable}


def _properties(results: Sequence[Result], run: Run) -> Iterable[tuple[str, str]]:
    yield "cluster", run.cluster.name
    yield "nodes", fold(run.nodes)
    yield "connection", run.cluster.connection
    yield "instance_types", " ".join(sorted({result.instance_type for result in results if result.instance_type}))
    yield "to_do", to_do_line(run.results, run.facts.catalog)
    yield "owners", ", ".join(sorted({owner for result in results if (owner := result.team or result.owner)}))


def _case(
    name: str, results: Sequence[Result], suite: str, not_reached: Collection[str], source: tuple[str, int] | None
) -> Element:
    seconds = sum(result.duration_s for result in results)
    results = [of_verdict for result in results for of_verdict in result.by_verdict]
    case = Element("testcase", classname=legal(f"clusterproof.{suite}"), name=legal(name), time=f"{seconds:.3f}")
    if source:
        case.set("file", legal(source[0]))
        case.set("line", str(source[1]))
    output = legal("\n\n".join(_blocks(results)))
    tag = _tag(results, not_reached)
    if tag:
        of_tag = [result for result in results if _tag_of(result, not_reached) == tag]
        outcome = SubElement(case, tag, type=of_tag[0].verdict.value, message=legal(_message(of_tag)))
        outcome.text = output
    else:
        SubElement(case, "system-out").text = output
    return case


def _blocks(results: Sequence[Result]) -> Iterable[str]:
    """What to describe, the worst first; passes and not applicable only if there is nothing else, or if new."""
    shown = [result for result in results if result.verdict in _NOTABLE or result.since_last]
    if not shown and len({result.check for result in results}) > 1:
        count = Counter(result.verdict for result in results)
        return ["\n".join(f"{verdict.value}: {number_of(number, 'check')}" for verdict, number in count.items())]
    groups: dict[tuple[Verdict, str, str], list[Result]] = defaultdict(list)
    by_cause: dict[str, list[Result]] = defaultdict(list)  # of a node, what is incomplete for one cause
    is_of_node = len({result.check for result in results}) > 1
    parts = (part for result in shown or results for part in result.by_cause)
    for part in sorted(parts, key=lambda part: part.verdict.rank):
        if is_of_node and part.verdict is Verdict.INCOMPLETE and part.cause:
            by_cause[part.cause].append(part)
        else:
            groups[part.verdict, part.check, remedied_like(part)].append(part)
    causes = (_text_of_cause(cause, parts) for cause, parts in by_cause.items())
    return [*(_text(check, verdict, group) for (verdict, check, _), group in groups.items()), *causes]


def _text_of_cause(cause: str, parts: Sequence[Result]) -> str:
    """The checks of a node that are incomplete for one cause, and what they said beside it."""
    checks = ", ".join(dict.fromkeys(part.check for part in parts))
    said = [line for line in _by_line(parts) if line not in ("", cause)]
    shown = [shortened(line, MAX_WORDS) for line in said[:MAX_LINES]]
    return "\n".join([f"verdict: {Verdict.INCOMPLETE.value}", f"checks: {checks}", cause, *shown, *_more(said)])


def _more(lines: Sequence[str]) -> list[str]:
    """How many of these lines are left out."""
    left_out = len(lines) - MAX_LINES
    return [f"… and {number_of(left_out, 'more line')}; results.jsonl has all"] if left_out > 0 else []


def _message(results: Sequence[Result]) -> str:
    """`gpu[003,007]: 14 errors; expected 0 (+1)`: the first observation with its nodes, and how many more there are."""
    by_line = _by_line(results)
    first = min(by_line)
    more = f" (+{len(by_line) - 1})" if len(by_line) > 1 else ""
    return shortened(f"{within(fold(by_line[first]), MAX_NODES)}: {first}{more}", MAX_ATTRIBUTE)


def _by_line(results: Sequence[Result]) -> dict[str, list[str]]:
    """The nodes of each line of what was seen."""
    by_line: dict[str, list[str]] = defaultdict(list)
    for result in results:
        for line in result.message.split("\n"):
            by_line[line].append(result.node)
    return by_line


def _since(results: Sequence[Result]) -> str:
    """`new gpu003; still gpu[007-008]`; empty without a history, or if it was and is fine."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.since_last:
            nodes[result.since_last].append(result.node)
    return "; ".join(f"{kind} {within(fold(names), MAX_NODES)}" for kind, names in nodes.items())


def _text(check: str, verdict: Verdict, results: Sequence[Result]) -> str:
    first = results[0]
    nodes = within(fold(result.node for result in results), MAX_OF_ALL_NODES)
    about = (
        ("check", check),
        ("verdict", verdict.value),
        ("pairs" if first.is_of_pair else "nodes", nodes),
        ("since the last run", _since(results)),
    )
    if verdict not in _NOTABLE:
        return "\n".join(_rows(about))
    by_line = _by_line(results)
    by_line.pop("", None)
    lines = [*by_line]
    seen = [f"{within(fold(by_line[line]), MAX_NODES)}: {shortened(line, MAX_WORDS)}" for line in lines[:MAX_LINES]]
    rows = (
        ("looks at", first.title),
        ("by hand", first.evidence),
        ("owner", owner_of(first)),
        ("means", first.meaning),
        ("do", first.remedy),
    )
    return "\n".join([*_rows(about), *seen, *_more(lines), *_rows(rows)])


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{word}: {text}" for word, text in rows if text]


FORMAT = Format("junit.xml", suites)
