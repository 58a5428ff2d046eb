"""`junit.xml`: a suite for each subsystem, and in it a case for each check and verdict, with its nodes folded.

`--junitxml` is pytest's own file, with a case for each check and node: a thousand nodes are more than Jenkins shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import SUBSYSTEMS, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.findings import shortened, within
from clusterproof.reports.legal_xml import MAX_ATTRIBUTE, legal
from clusterproof.reports.run import Run
from clusterproof.reports.wording import owner_of

MAX_NODES = 300  # characters of the nodeset in a name
MAX_OF_ALL_NODES = 100_000
MAX_LINES = 100  # of what was seen
MAX_WORDS = 2_000  # characters of a line
OTHER = "other"  # the suite of checks that name no subsystem
_TAGS = {Verdict.FAIL: "failure", Verdict.INCOMPLETE: "error", Verdict.NOT_APPLICABLE: "skipped"}

Cases = dict[tuple[str, Verdict], list[Result]]


def suites(run: Run) -> str:
    """The results of a run, as Jenkins, GitLab and GitHub's actions show them."""
    by_suite: dict[str, Cases] = defaultdict(lambda: defaultdict(list))
    for result in run.results:
        by_suite[result.subsystem or OTHER][result.check, result.verdict].append(result)
    known = [name for name in SUBSYSTEMS if name in by_suite]
    names = [*known, *sorted(by_suite.keys() - set(known))]
    root = Element("testsuites", name=legal(f"clusterproof {run.cluster.name}"))
    for name in names:
        root.append(_suite(name, by_suite[name], run))
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, "unicode")}\n'


def _suite(name: str, cases: Cases, run: Run) -> Element:
    count = {tag: sum(_TAGS.get(verdict) == tag for _, verdict in cases) for tag in _TAGS.values()}
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
    data = [result for results in cases.values() for result in results]
    properties = SubElement(suite, "properties")
    for key, value in _properties(data, run):
        SubElement(properties, "property", name=key, value=legal(within(value, MAX_NODES)))
    for (check, verdict), results in sorted(cases.items(), key=lambda entry: (entry[0][0], entry[0][1].rank)):
        suite.append(_case(check, verdict, results, name))
    return suite


def _properties(results: Sequence[Result], run: Run) -> Iterable[tuple[str, str]]:
    yield "cluster", run.cluster.name
    yield "nodes", fold(run.nodes)
    yield "connection", run.cluster.connection
    yield "instance_types", " ".join(sorted({result.instance_type for result in results if result.instance_type}))
    yield "owners", " ".join(sorted({result.owner for result in results if result.owner}))


def _case(check: str, verdict: Verdict, results: Sequence[Result], suite: str) -> Element:
    first = results[0]
    nodes = fold(result.node for result in results)
    case = Element(
        "testcase",
        classname=legal(f"clusterproof.{suite}.{check.rpartition('.')[2]}"),
        name=legal(f"{first.title} [{within(nodes, MAX_NODES)}]"),
        time=f"{sum(result.duration_s for result in results):.3f}",
    )
    words = legal(_words(check, verdict, results, nodes))
    if verdict in _TAGS:
        lines = {line for result in results for line in result.message.split("\n")}
        message = f"{within(nodes, MAX_NODES)}: {min(lines)}" + (f" (+{len(lines) - 1})" if len(lines) > 1 else "")
        data = SubElement(
            case, _TAGS[verdict], type=verdict.value, message=legal(shortened(message or first.title, MAX_ATTRIBUTE))
        )
        data.text = words
    else:
        SubElement(case, "system-out").text = words
    return case


def _since(results: Sequence[Result]) -> str:
    """`new gpu003; still gpu[007-008]`; empty where there is no history, or it was fine and is."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.since_last:
            nodes[result.since_last].append(result.node)
    return "; ".join(f"{kind} {within(fold(names), MAX_NODES)}" for kind, names in nodes.items())


def _words(check: str, verdict: Verdict, results: Sequence[Result], nodes: str) -> str:
    first = results[0]
    alike: dict[str, list[str]] = defaultdict(list)
    for result in results:
        for line in filter(None, result.message.split("\n")):
            alike[line].append(result.node)
    seen = [
        f"{within(fold(names), MAX_NODES)}: {shortened(line, MAX_WORDS)}"
        for line, names in list(alike.items())[:MAX_LINES]
    ]
    if len(alike) > MAX_LINES:
        seen.append(f"… and {len(alike) - MAX_LINES} more lines; results.jsonl has all")
    rows = (
        ("check", check),
        ("verdict", verdict.value),
        ("pairs" if first.is_of_pair else "nodes", within(nodes, MAX_OF_ALL_NODES)),
        ("since the last run", _since(results)),
        ("by hand", first.evidence),
        ("owner", owner_of(first)),
        ("means", first.meaning),
        ("do", first.remedy),
    )
    return "\n".join([*(f"{word}: {words}" for word, words in rows if words), *seen])
