"""`metrics.prom`: a run's metrics for node_exporter's textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import cut_of, pairs_by_verdict, worst_of
from clusterproof.reports.findings import shortened
from clusterproof.reports.formats import Format
from clusterproof.reports.run import Run

MAX_FINDINGS = 10_000  # series, so that a broken cluster does not overload the server; the counts are complete
MAX_LABEL = 507  # characters: a pair of names of DNS's maximum length
_BY_NODE = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN)


def prometheus(run: Run) -> str:
    """The metrics of a run, in Prometheus' text format."""
    return "".join(f"{line}\n" for family in _families(run) for line in family)


def _families(run: Run) -> Iterator[Iterable[str]]:
    cluster = {"cluster": run.cluster.name}
    yield _family("run_timestamp_seconds", "When the run began.", [(cluster, round(run.began.timestamp(), 3))])
    yield _family("run_duration_seconds", "How long it took.", [(cluster, round(run.seconds, 3))])
    yield _family(
        "run_exit_code",
        "0 nothing failed, 1 a failure, 2 interrupted, 5 nothing was checked, 10 something is incomplete.",
        [(cluster, run.exit_code)],
    )
    cut = cut_of(run.results)
    missing = cut.chosen - cut.ended if cut else 0
    yield _family(
        "run_checks_chosen", "Checks of the run, on each node that they are for.", [(cluster, len(run.results))]
    )
    yield _family(
        "run_checks_unevaluated", "Those that had not ended when the run was interrupted.", [(cluster, missing)]
    )
    worst = worst_of(result for result in run.results if result.is_of_node)
    yield _by_verdict("nodes", "Nodes by the worst verdict on each.", cluster, Counter(worst.values()))
    pairs = pairs_by_verdict(run.results)
    if pairs:
        yield _by_verdict("pairs", "Pairs of nodes by the worst verdict on each.", cluster, pairs)
    yield from _results(run, cluster, worst)
    since = run.since
    if since:
        kinds = [({**cluster, "change": kind}, len(changes)) for kind, changes in since.changes.kinds]
        yield _family("changes", "Findings that are new, still there or gone since the last run.", kinds)
    yield from _findings(run, cluster)


def _by_verdict(name: str, about: str, cluster: Mapping[str, str], counts: Mapping[Verdict, int]) -> Iterable[str]:
    return _family(
        name, about, [({**cluster, "verdict": verdict.value}, counts.get(verdict, 0)) for verdict in Verdict]
    )


def _results(run: Run, cluster: Mapping[str, str], nodes: Iterable[str]) -> Iterator[Iterable[str]]:
    by_check = Counter((check, verdict) for check, _, verdict in _once(run.results))
    by_node = Counter(
        (node, verdict) for _, node, verdict in _once(result for result in _each(run) if result.is_of_node)
    )
    yield _family(
        "results",
        "Verdicts of a check over all nodes, or pairs.",
        [
            ({**cluster, "check": check, "verdict": verdict.value}, by_check[check, verdict])
            for check in dict.fromkeys(check for check, _ in by_check)
            for verdict in Verdict
        ],
    )
    yield _family(
        "node_results",
        "Checks that do not pass on a node.",
        [
            ({**cluster, "node": node, "verdict": verdict.value}, by_node[node, verdict])
            for node in nodes
            for verdict in _BY_NODE
        ],
    )


def _once(results: Iterable[Result]) -> Iterable[tuple[str, str, Verdict]]:
    """Check, node and verdict without duplicates: a parametrized test has several results on a node."""
    return dict.fromkeys((result.check, result.node, result.verdict) for result in results)


def _findings(run: Run, cluster: Mapping[str, str]) -> Iterator[Iterable[str]]:
    each = (result for result in _each(run) if result.verdict in _BY_NODE and result.is_evaluated)
    worst_first = sorted(each, key=lambda result: result.verdict.rank)
    yield _family(
        "finding",
        "1 for each check that does not pass on a node, on a pair of nodes, or on the cluster.",
        [({**cluster, **_labels(result)}, 1) for result in worst_first[:MAX_FINDINGS]],
    )
    left_out = max(0, len(worst_first) - MAX_FINDINGS)
    yield _family("findings_left_out", "Findings for which there is no series here.", [(cluster, left_out)])


def _each(run: Run) -> Iterator[Result]:
    """The results, each once for every verdict among its findings."""
    return (part for result in run.results for part in result.by_verdict)


def _labels(result: Result) -> dict[str, str]:
    return {
        "node": "" if result.is_of_pair else result.node,
        **({"pair": result.node} if result.is_of_pair else {}),
        "check": result.check,
        "verdict": result.verdict.value,
        "owner": result.owner,
        "instance_type": result.instance_type,
        "subsystem": result.subsystem,
    }


def _family(name: str, help_text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    yield f"# HELP clusterproof_{name} {help_text}"
    yield f"# TYPE clusterproof_{name} gauge"
    seen: set[str] = set()
    for labels, value in samples:
        label_text = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
        if label_text not in seen:  # node_exporter rejects a whole file with a duplicate series
            seen.add(label_text)
            yield f"clusterproof_{name}{{{label_text}}} {value}"


def _quoted(text: str) -> str:
    text = shortened(text, MAX_LABEL).encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


FORMAT = Format("metrics.prom", prometheus)
