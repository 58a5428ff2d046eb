"""`--k8s-gate MODE`: the run's verdicts as a condition of each Kubernetes node."""

from __future__ import annotations

import re
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.errors import raised_at
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.single_node import fails_alone
from clusterproof.plugins.evidence.recording import recording_file, write_cluster, write_node
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import ASKED, KubernetesError
from clusterproof.plugins.kubernetes.gate import (
    FALSE,
    LIMIT,
    OBSERVE,
    OF_KUBERNETES,
    GateSettings,
    Health,
    healths,
    resident,
    unvisited,
)
from clusterproof.plugins.kubernetes.gate.object_writer import lines_by_message
from clusterproof.plugins.kubernetes.gate.round import KeptVerdict, keep_verdicts, kept_verdicts, round_of, store
from clusterproof.plugins.kubernetes.gate.taints import GateError, most_tainted, own_key
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome, write
from clusterproof.plugins.suite.ending import EXIT_UNWRITTEN
from clusterproof.plugins.suite.state import EVIDENCE, nodes_of, occasion_of, requires
from clusterproof.plugins.transport.kubernetes.agents import CONNECTION as AGENTS
from clusterproof.plugins.transport.kubernetes.agents import INTERVAL_S
from clusterproof.plugins.transport.kubernetes.report_cache import ReportCache
from clusterproof.reports import EarlyEnd, cut_of

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options


WAITING = (
    " only beside other nodes, whose reports may be older or newer: left as it stands until the next round has read "
    "all logs anew"
)


def orders_of(config: pytest.Config, cluster: Cluster) -> GateSettings:
    """What the command line asks the gate for. Raises pytest.UsageError where it may not be asked so."""
    option: Options = config.option
    orders = GateSettings(option.k8s_gate or OBSERVE, option.k8s_max_tainted or LIMIT, option.k8s_startup_taint or "")
    if cluster.connection == AGENTS:
        orders = resident(orders, option.k8s_every or INTERVAL_S)
    try:
        most_tainted(orders.limit, 1)
    except GateError as wrong:
        raise pytest.UsageError(f"--k8s-max-tainted: {wrong}") from None
    try:
        own_key(orders.startup) if orders.startup else ""
    except GateError as wrong:
        raise pytest.UsageError(f"--k8s-startup-taint: {wrong}") from None
    if option.k8s_max_tainted and orders.mode == OBSERVE:
        raise pytest.UsageError("--k8s-max-tainted bounds --k8s-gate taint; expected that, or none of it")
    if cluster.connection not in ("kubernetes", AGENTS):
        raise pytest.UsageError(
            f"--k8s-gate writes to nodes of Kubernetes, and {cluster.name:.80} is reached by {cluster.connection}; "
            "expected k8s:…, eks:… or HyperPod with --via kubernetes"
        )
    if option.redact:
        raise pytest.UsageError(
            "--k8s-gate with --redact: redacted names are not the nodes' own; expected one of the two"
        )
    _refuse_a_part(config)
    return orders


def _refuse_a_part(config: pytest.Config) -> None:
    """Reject runs of only some checks, which do not show that a node is fit; or of checks that running pods would fail.

    Raises pytest.UsageError.
    """
    option: Options = config.option
    parts = {
        "-k": option.keyword,
        "-m job": requires(option.markexpr, "job"),
        "--lf": config.getoption("lf", False),
        "--sw": config.getoption("stepwise", False),
        "--deselect": config.getoption("deselect", None),
    }
    named = next((flag for flag, value in parts.items() if value), "")
    named = named or next((f"{path:.120}" for path in config.args if "::" in path), "")
    if named:
        raise pytest.UsageError(f"--k8s-gate with {named}: some checks prove no node; expected -m 'prolog or epilog'")
    if occasion_of(option.markexpr) in ("prolog", "epilog", "ami"):
        raise pytest.UsageError(
            f"--k8s-gate with -m {option.markexpr!r:.80}: there a process that runs is a fault, and pods run; "
            "expected -m 'prolog or epilog'"
        )


class K8sGateReporter:
    """The plugin of a run with `--k8s-gate`."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> None:
        """Reject invalid combinations. Raises pytest.UsageError."""
        self.orders = orders_of(config, cluster)
        self.cluster = cluster
        self.results = results
        self.began = time.time()
        self.found: Mapping[str, Health] = {}
        self.written = WriteOutcome((), ())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the findings; nothing if the run was interrupted."""
        outcomes: Any = session.config.pluginmanager.get_plugin("clusterproof-outcomes")
        why = _unended(session, cut_of(self.results), outcomes.raised)
        self.written = WriteOutcome((), (why,)) if why else self._write(session.config, is_whole=not outcomes.broken)
        if not why:
            self._keep_unfit(session.config)
            self._leave(session.config.option.k8s_keep)
        if self.written.problems and session.exitstatus not in (pytest.ExitCode.INTERRUPTED, *_ERRORS):
            session.exitstatus = EXIT_UNWRITTEN

    def _keep_unfit(self, config: pytest.Config) -> None:
        """Keep the evidence of nodes that became unfit, or have a different fault."""
        folder = config.option.k8s_evidence
        if not folder:
            return
        evidence = config.stash.get(EVIDENCE, {})
        try:
            for name in self.written.changes.keys() & evidence.keys():
                if self.found[name].status == FALSE:
                    keep_unfit(Path(folder), self.cluster, evidence[name], self.began)
        except OSError as problem:
            message = (
                f"--k8s-evidence {folder:.120}: {problem.strerror}; expected a folder with room that may be written"
            )
            self.written = replace(self.written, problems=(*self.written.problems, message))

    def _leave(self, folder: str | None) -> None:
        """Write what the gate's main process should log about this round."""
        if not folder:
            return
        kept = ReportCache(folder)
        evaluated = {result.node for result in self.results if result.is_of_node}
        read = ((node, kept.read_at(node)) for node in evaluated)
        reported = {node: at for node, at in read if at is not None}
        try:
            silent = evaluated - self.found.keys()
            gate_round = round_of(self.began, time.time(), self.found, reported, self.written, ASKED, silent)
            store(Path(folder), gate_round)
        except OSError as problem:
            unwritten = f"--k8s-keep {folder:.120}: {problem.strerror}; expected a folder that may be written"
            self.written = replace(self.written, problems=(*self.written.problems, unwritten))

    def _write(self, config: pytest.Config, is_whole: bool) -> WriteOutcome:
        verdicts = self.found = healths(self.results, is_whole)
        try:
            waiting = self._unconfirmed(config, verdicts)
            own = {node: health for node, health in verdicts.items() if node not in waiting}
            earlier, before = self._earlier(config)
            self.found = {**{node: verdict.health for node, verdict in earlier.items()}, **own}
            _keep(config, {**earlier, **{node: KeptVerdict(health, self.began) for node, health in own.items()}})
            if before and before == own and not (waiting or unvisited(self.results)):
                return WriteOutcome((f"{len(own)} of {len(self.found)} nodes were evaluated: all as before",), ())
            began = {node: verdict.began for node, verdict in earlier.items()}
            api = open_api(self.cluster.settings)
            written = write(api, self.orders, self.found, self.began, time.time(), began)
        except (AwsError, KubernetesError) as problem:
            return WriteOutcome((), (str(problem),))
        except Exception as broken:  # the run's reports are written all the same
            return WriteOutcome(
                (), (f"the gate itself broke: {type(broken).__name__}: {broken} ({raised_at(broken)})",)
            )

        lines = lines_by_message({name: f"{verdicts[name].reason}{WAITING}" for name in waiting})
        return replace(written, lines=(*written.lines, *lines), problems=(*written.problems, *self._unvisited()))

    def _earlier(self, config: pytest.Config) -> tuple[Mapping[str, KeptVerdict], Mapping[str, Health]]:
        """If a gate evaluates some of its nodes: the valid verdicts of the others, and the previous ones of these."""
        if not (config.option.k8s_keep and self.cluster.is_part):
            return {}, {}
        verdicts = kept_verdicts(Path(config.option.k8s_keep))
        own = {result.node for result in self.results if result.is_of_node}
        others = {node: verdict for node, verdict in verdicts.items() if node not in own}
        return others, {node: verdict.health for node, verdict in verdicts.items() if node in own}

    def _unconfirmed(self, config: pytest.Config, verdicts: Mapping[str, Health]) -> frozenset[str]:
        """Nodes that fail only in comparison for the first time: a gate does not read all reports at the same time."""
        if self.cluster.connection != AGENTS or not config.option.k8s_keep:
            return frozenset()
        failed: dict[str, list[str]] = defaultdict(list)
        for result in self.results:
            is_failed = result.is_of_node and result.subject != OF_KUBERNETES and result.verdict is Verdict.FAIL
            if is_failed and result.node in verdicts and verdicts[result.node].status == FALSE:
                failed[result.node].append(result.check)
        every = nodes_of(config)
        failing_with_peers = [name for name, checks in failed.items() if not fails_alone(every[name], checks)]
        return ReportCache(config.option.k8s_keep).unconfirmed(failing_with_peers, time.time(), every)

    def _unvisited(self) -> list[str]:
        """One line for each reason of the API server why no pod was sent to nodes."""
        left = "not evaluated, and their conditions stay as they are"
        return lines_by_message({node: f"{left}: {reason}" for node, reason in unvisited(self.results).items()})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was written, and what was not."""
        for line in self.written.lines:
            terminalreporter.write_line(f"gate: {line}")
        for problem in self.written.problems:
            terminalreporter.write_line(f"gate: not written: {problem}", yellow=True)


def reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> K8sGateReporter | None:
    """The reporter of `--k8s-gate`; None if nothing is run. Raises pytest.UsageError."""
    return None if config.option.collectonly else K8sGateReporter(config, cluster, results)


def _keep(config: pytest.Config, verdicts: Mapping[str, KeptVerdict]) -> None:
    """Store verdicts for rounds that evaluate nothing; without storage, each round evaluates."""
    if config.option.k8s_keep:
        with suppress(OSError):
            keep_verdicts(Path(config.option.k8s_keep), verdicts)


_ERRORS = (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)


def _unended(session: pytest.Session, cut: EarlyEnd | None, raised: BaseException | None) -> str:
    """Why the run did not come to its end; empty where it did, also where a full disk had no room for its reports."""
    if cut or raised or session.shouldfail or session.shouldstop or session.exitstatus in _ERRORS:
        why = cut.description if cut else "the run was stopped before its end"
        return f"{why}; expected one that evaluates every check on every node"
    return ""


MAX_RECORDINGS = 5  # recordings kept per node: the newest
RECORDED = re.compile(r"\d{8}T\d{6}Z", re.ASCII)


def keep_unfit(folder: Path, cluster: Cluster, evidence: NodeEvidence, at: float) -> None:
    """Record one node's evidence as `FOLDER/NODE/TIME`; `at` in seconds since 1970. Raises OSError."""
    folder_of_node = folder / recording_file(evidence.node).removesuffix(".json")
    recording = folder_of_node / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    targets = tuple(target for target in cluster.targets if target.name == evidence.node)
    for old in _recordings(folder_of_node)[: 1 - MAX_RECORDINGS]:  # first, to free space on a full volume
        shutil.rmtree(old)
    try:
        write_cluster(recording, replace(cluster, targets=targets, is_part=True))
        write_node(recording, evidence)
    except OSError:
        shutil.rmtree(recording, ignore_errors=True)
        raise


def _recordings(folder: Path) -> list[Path]:
    """A node's recordings, the oldest first; other files are left alone."""
    named = (path for path in folder.glob("*") if RECORDED.fullmatch(path.name))
    return sorted(path for path in named if path.is_dir() and not path.is_symlink())
