"""A run's session: gathers the evidence once, before the first check, and passes it to every worker."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.aws import collectors as aws
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence, Status
from clusterproof.plugins.core.interning import Interning
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evidence.cluster import NOT_OF_AWS
from clusterproof.plugins.evidence.fact import IN_JOB, LOAD_COLLECTORS, ONLY_CAPTURED
from clusterproof.plugins.evidence.recording import (
    PAIRWISE_FILES,
    begin_recording,
    read_control_plane,
    write_control_plane,
    write_node,
)
from clusterproof.plugins.suite.collect import expand_pairs
from clusterproof.plugins.suite.gatherer import Discovered, Gatherer
from clusterproof.plugins.suite.perf import load_options as command_line
from clusterproof.plugins.suite.selection import (
    Ended,
    chosen_of,
    collectors_of_control_plane,
    collectors_of_nodes,
    needs_pairs,
    one_of_each,
    read_chosen,
    unevaluated,
    write_chosen,
)
from clusterproof.plugins.suite.state import (
    CLUSTER,
    CONTROL_PLANE,
    EVIDENCE,
    PAIRWISE,
    POLICY,
    is_named,
    note_unwritten,
    policy_of,
)
from clusterproof.plugins.suite.terminal import RedactedHeader, capture_lines, cluster_lines, window_lines
from clusterproof.plugins.transport.gather import replay

if TYPE_CHECKING:
    from clusterproof.plugins.redaction.redact import Redaction

MAX_NODES_KEPT_WHOLE = 1_000  # the complete evidence of 10,000 recorded nodes would take 3 GB
MAX_NODES_IN_CACHE = 100  # for `--new-first`, pytest would store 149,000 tests of 1,000 nodes
GC_THRESHOLDS = (100_000, 20, 100)  # new objects per collection; collections per older one
T = TypeVar("T")


class ClusterSession:
    """The plugin of a run over one cluster."""

    def __init__(self, config: pytest.Config, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.gatherer = Gatherer(config, cluster)
        self.redaction: Redaction | None = None
        if config.option.redact:
            self._redact(getattr(config, "workerinput", None))
        config.stash[CLUSTER] = self.redaction.cluster if self.redaction else cluster
        self.is_chosen = False
        self.shared: tempfile.TemporaryDirectory[str] | None = None
        self.why_not_shared = ""

    def _redact(self, worker: dict[str, Any] | None) -> None:
        """Replace names by those to be displayed; a worker reads what the controller has rewritten."""
        from clusterproof.plugins.redaction.policy import without_names
        from clusterproof.plugins.redaction.redact import Redaction  # few runs need it, and it compiles many patterns

        policy = policy_of(self.config)
        if worker is None:
            self.redaction = Redaction(self.cluster, policy)
            self.config.stash[POLICY] = self.redaction.policy
            self.config.pluginmanager.register(RedactedHeader(), "clusterproof-own-header")
        else:
            shown: dict[str, str] = worker["clusterproof_policy"]
            self.config.stash[POLICY] = without_names(policy, *(shown.__getitem__,) * 4)

    def pytest_report_header(self) -> list[str]:
        """The header: what is being checked."""
        shown = self.config.stash[CLUSTER]
        if not shown.targets:
            return []
        captured = self.gatherer.captured
        return [
            *cluster_lines(shown),
            *window_lines(self.config.option.since),
            *capture_lines(captured, self.redaction),
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """With xdist the controller gathers before any worker starts; workers read the results."""
        gc.set_threshold(*GC_THRESHOLDS)  # evidence lives to the end: scanning it is useless
        if len(self.cluster.targets) > MAX_NODES_IN_CACHE and not self.config.getoption("newfirst", False):
            self._forget_which_are_new()
        worker = getattr(self.config, "workerinput", None)
        if worker is None and self.config.getoption("dist", "no") != "no" and not self.config.option.collectonly:
            self.shared = tempfile.TemporaryDirectory(prefix="clusterproof-")
        if not self.cluster.targets:
            self.config.stash[EVIDENCE] = {}  # there are no nodes to ask
            return
        if worker is not None:
            folder = Path(worker["clusterproof_recording"])
            self.config.stash[EVIDENCE] = replay(folder, self.cluster)
            self.config.stash[CONTROL_PLANE] = read_control_plane(folder, self.cluster.name)
            self._replay_pairs(folder)
            return
        if self.cluster.connection == "replay":
            self._replay_pairs(Path(self.cluster.settings["recording"]))
        if self.shared:
            of_control_plane = NOT_OF_AWS | frozenset(aws.collector_names())
            option, paths = self.config.option, command_line.paths_named(self.config)
            others = command_line.others_named(self.config)
            loads = command_line.collectors_named(option, paths, others)
            of_nodes = frozenset(collector_names()) - (frozenset() if is_named(option.markexpr, "job") else IN_JOB)
            self.gather(of_nodes, of_control_plane, Path(self.shared.name), loads)
            if command_line.pairs_are_needed(option, paths, others):
                self.measure_pairs(Path(self.shared.name))

    @property
    def is_large(self) -> bool:
        """Whether there are so many nodes that memory limits what is kept of them."""
        return len(self.cluster.targets) > MAX_NODES_KEPT_WHOLE

    def _forget_which_are_new(self) -> None:
        """Do not update pytest's list of all tests ever run: each run would read and write it in full."""
        plugin = self.config.pluginmanager.get_plugin("nfplugin")
        if plugin:
            self.config.pluginmanager.unregister(plugin)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker where the evidence is."""
        if self.shared:
            node.workerinput["clusterproof_recording"] = self.shared.name
            node.workerinput["clusterproof_policy"] = self.redaction.of_policy if self.redaction else {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Gather what the selected checks need, then run them."""
        items = session.items if hasattr(session, "items") else []
        if items and EVIDENCE not in self.config.stash and not self.config.option.collectonly:
            one_each = one_of_each(items)
            self.gather(
                collectors_of_nodes(one_each, self.cluster) - ONLY_CAPTURED - LOAD_COLLECTORS,
                collectors_of_control_plane(one_each, self.cluster),
                None,
                command_line.collectors_to_load(items, self.config.option),
            )
            if any(needs_pairs(item) for item in one_each):
                self.measure_pairs(None)
                expand_pairs(session)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self) -> Iterator[None]:
        """Record that the selection is known: a usage error or signal may come before."""
        yield
        self.is_chosen = True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell the reporting process what its workers have collected."""
        worker = getattr(self.config, "workerinput", {})
        if "clusterproof_recording" in worker and self.is_chosen:
            write_chosen(Path(worker["clusterproof_recording"]), session.items)

    def unevaluated(self, session: pytest.Session, ended: Ended, why: str) -> Iterator[Result]:
        """A result for each selected check that did not end."""
        own = chosen_of(session.items) if self.is_chosen else []
        return unevaluated(self.config, read_chosen(Path(self.shared.name)) if self.shared else own, ended, why)

    def pytest_unconfigure(self) -> None:
        """Remove temporary files."""
        if self.shared:
            self.shared.cleanup()

    def gather(
        self,
        collectors: frozenset[str],
        control_collectors: frozenset[str],
        shared: Path | None,
        loads: frozenset[str] = frozenset(),
    ) -> None:
        """Ask every node and the control plane once; keep the answers, and record them if requested.

        `loads` are the collectors that load the nodes, which are visited a second time for them.
        """
        folders = [folder for folder in (self._record_folder(), shared) if folder]
        self._write(folders, begin_recording, self.config.stash[CLUSTER])
        kept: dict[str, NodeEvidence] = {}
        discovered = Discovered()
        self.config.stash[EVIDENCE] = kept
        is_replaced = self.is_large and not (self.config.option.bundle or shared)
        left_out = frozenset(collector_names()) - collectors
        interning = Interning()

        def keep(evidence: NodeEvidence) -> None:
            kept[evidence.node] = interning.intern(_needed(evidence, left_out)) if is_replaced else evidence
            self._write(folders, write_node, evidence)

        if self.redaction:
            self.redaction.further_collectors = self.gatherer.further_names
        with self.redaction.rewriting(keep) if self.redaction else nullcontext(keep) as take:
            self.gatherer.nodes(collectors, loads, discovered.before(take))
        if self.redaction:
            self.config.stash[POLICY] = self.redaction.policy
        if control_collectors:
            collected = self.gatherer.control_plane(control_collectors, discovered)
            self.config.stash[CONTROL_PLANE] = (
                self.redaction.of_control_plane(collected) if self.redaction else collected
            )
            self._write(folders, write_control_plane, self.config.stash[CONTROL_PLANE])
        self._require_shared()

    def _write(self, folders: list[Path], write: Callable[[Path, T], None], content: T) -> None:
        """Write to every recording; if one fails, it is abandoned and the others are completed."""
        for folder in list(folders):
            try:
                write(folder, content)
            except OSError as problem:
                folders.remove(folder)
                if folder == self._record_folder():
                    note_unwritten(self.config, "--record", problem)
                else:
                    self.why_not_shared = f"{problem.filename or folder}: {problem.strerror or problem}"

    def measure_pairs(self, shared: Path | None) -> None:
        """Measure between nodes, or read a recording's measurements; workers find them in `shared`."""
        from clusterproof.plugins.suite.perf.pairs_measure import write_journals  # few runs measure pairs
        from clusterproof.plugins.suite.perf.session import measured

        if PAIRWISE not in self.config.stash and self.cluster.connection not in ("replay", "capture"):
            self.config.stash[PAIRWISE] = measured(
                self.config, self.cluster, self.gatherer.connection(), self.gatherer.limits(), self.redaction
            )
        if shared and PAIRWISE in self.config.stash:
            self._write([shared], lambda folder, run: write_journals(run, folder), self.config.stash[PAIRWISE])
            self._require_shared()

    def _require_shared(self) -> None:
        """Raise pytest.UsageError if workers would take nodes that are missing in their folder for unreached ones."""
        if self.why_not_shared:
            room = "expected room there for what all nodes report: TMPDIR names another folder; or no -n"
            raise pytest.UsageError(f"-n: {self.why_not_shared}; {room}")

    def _replay_pairs(self, folder: Path) -> None:
        """Read a recording's pairs, if any: each of them then gets a test."""
        if any(folder.glob(PAIRWISE_FILES)):
            from clusterproof.plugins.suite.perf.session import read_again

            self.config.stash[PAIRWISE] = read_again(self.config, self.cluster, self.redaction, folder)

    def _record_folder(self) -> Path | None:
        return Path(self.config.option.record) if self.config.option.record else None


def _needed(evidence: NodeEvidence, left_out: frozenset[str]) -> NodeEvidence:
    """A node without recorded values that no check uses; errors are kept."""
    wanted = {
        name: collector
        for name, collector in evidence.collectors.items()
        if name not in left_out or collector.status is not Status.READ
    }
    return replace(evidence, collectors=wanted)
