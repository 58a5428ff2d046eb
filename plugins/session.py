"""A run: gathers the evidence once, before the first check, and hands it to every worker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.asking import Asking
from clusterproof.plugins.aws import leaf as aws
from clusterproof.plugins.aws.mounted import Source, sources_of
from clusterproof.plugins.collect import expand_pairs
from clusterproof.plugins.evidence import NodeEvidence
from clusterproof.plugins.facts.fact import ONLY_CAPTURED
from clusterproof.plugins.facts.window import window
from clusterproof.plugins.gather import replay
from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.inventory.recording import read_control_plane, write_cluster, write_control_plane, write_node
from clusterproof.plugins.load import command_line
from clusterproof.plugins.load.options import LEAVES
from clusterproof.plugins.needs import leaves_of_control_plane, leaves_of_nodes, needs_pairs
from clusterproof.plugins.nodeset import fold
from clusterproof.plugins.probe.options import leaf_names
from clusterproof.plugins.state import CLUSTER, CONTROL_PLANE, EVIDENCE, PAIRWISE, SLURM_LEAF

if TYPE_CHECKING:
    from clusterproof.plugins.redact import Redaction


class Session:
    """The plugin object of a run over one cluster."""

    def __init__(self, config: pytest.Config, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.asking = Asking(config, cluster)
        is_worker = hasattr(config, "workerinput")  # it reads what the controller has rewritten
        self.redaction = redaction(cluster) if config.option.redact and not is_worker else None
        config.stash[CLUSTER] = self.redaction.cluster if self.redaction else cluster
        self.shared: tempfile.TemporaryDirectory[str] | None = None

    def pytest_report_header(self) -> list[str]:
        """Say what is validated."""
        shown = self.config.stash[CLUSTER]
        types = sorted({target.instance_type for target in shown.targets if target.instance_type})
        nodes = fold(target.name for target in shown.targets)
        count = "1 node" if len(shown.targets) == 1 else f"{len(shown.targets)} nodes"
        return [
            f"cluster: {shown.name}: {count} ({nodes}) by {shown.connection}"
            + (f", {', '.join(types)}" if types else ""),
            *(f"cluster: {note}" for note in shown.notes),
            *self._window(),
            *self._not_understood(),
        ]

    def _not_understood(self) -> list[str]:
        """Name the files of a capture that nobody understood."""
        if not self.asking.captured:
            return []
        from clusterproof.plugins.capture.collection import not_understood

        return list(not_understood(self.asking.captured, is_redacted=self.redaction is not None))

    def _window(self) -> list[str]:
        """Say how far back the kernel log counts, where it is not the whole boot."""
        since = window(self.config.option.since)
        return [] if since.is_boot else [f"kernel log: only what it told {since.in_words} counts"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """With xdist the controller gathers before any worker starts; a worker reads what it gathered."""
        worker = getattr(self.config, "workerinput", None)
        if worker is not None:
            folder = Path(worker["clusterproof_recording"])
            self.config.stash[EVIDENCE] = replay(folder, self.cluster)
            self.config.stash[CONTROL_PLANE] = read_control_plane(folder, self.cluster.name)
            self._replay_pairs(folder)
            return
        if self.cluster.connection == "replay":
            self._replay_pairs(Path(self.cluster.settings["recording"]))
        if self.config.getoption("dist", "no") != "no" and not self.config.option.collectonly:
            self.shared = tempfile.TemporaryDirectory(prefix="clusterproof-")
            of_control_plane = frozenset({SLURM_LEAF, *aws.leaf_names()})
            option, paths = self.config.option, command_line.paths_named(self.config)
            loads = command_line.leaves_of_packaged(option, paths)
            self.gather(frozenset(leaf_names()), of_control_plane, Path(self.shared.name), loads)
            if command_line.needs_pairs_of_packaged(option, paths):
                self.measure_pairs(Path(self.shared.name))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker where the evidence is."""
        if self.shared:
            node.workerinput["clusterproof_recording"] = self.shared.name

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Gather what the selected checks need, then let them run."""
        items = session.items if hasattr(session, "items") else []
        if items and EVIDENCE not in self.config.stash and not self.config.option.collectonly:
            self.gather(
                leaves_of_nodes(items) - ONLY_CAPTURED - LEAVES,
                leaves_of_control_plane(items, self.cluster),
                None,
                command_line.leaves_to_load(items, self.config.option),
            )
            if any(needs_pairs(item) for item in items):
                self.measure_pairs(None)
                expand_pairs(session)
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind."""
        if self.shared:
            self.shared.cleanup()

    def gather(
        self,
        leaves: frozenset[str],
        control_leaves: frozenset[str],
        shared: Path | None,
        loads: frozenset[str] = frozenset(),
    ) -> None:
        """Ask every node and the control plane once; keep the answers, and write them where that was asked.

        `loads` are the leaves that load the nodes: for those they are visited a second time.
        """
        folders = [folder for folder in (self._record_folder(), shared) if folder]
        for folder in folders:
            write_cluster(folder, self.config.stash[CLUSTER])
        kept: dict[str, NodeEvidence] = {}
        mounted: set[Source] = set()
        self.config.stash[EVIDENCE] = kept

        def keep(evidence: NodeEvidence) -> None:
            kept[evidence.node] = evidence
            for folder in folders:
                write_node(folder, evidence)

        if self.redaction:
            with self.redaction.rewriting(keep) as learn:
                self.asking.nodes(leaves, loads, noting(mounted, learn))
        else:
            self.asking.nodes(leaves, loads, noting(mounted, keep))
        if control_leaves:
            told = self.asking.control_plane(control_leaves, mounted)
            self.config.stash[CONTROL_PLANE] = self.redaction.of_control_plane(told) if self.redaction else told
            for folder in folders:
                write_control_plane(folder, self.config.stash[CONTROL_PLANE])

    def measure_pairs(self, shared: Path | None) -> None:
        """Measure between nodes, or read what a recording has of that; workers find it in `shared`."""
        from clusterproof.plugins.pairwise import of_session as of_pairs  # few runs measure pairs

        if PAIRWISE not in self.config.stash and self.cluster.connection not in ("replay", "capture"):
            self.config.stash[PAIRWISE] = of_pairs.measured(
                self.config, self.cluster, self.asking.connection(), self.asking.limits(), self.redaction
            )
        if shared and PAIRWISE in self.config.stash:
            of_pairs.write_journals(self.config.stash[PAIRWISE], shared)

    def _replay_pairs(self, folder: Path) -> None:
        """Read what a recording has of pairs, if it has any: then each of them gets a test."""
        from clusterproof.plugins.pairwise.journal import FILES  # a prolog replays nothing

        if any(folder.glob(FILES)):
            from clusterproof.plugins.pairwise.of_session import read_again

            self.config.stash[PAIRWISE] = read_again(self.config, self.cluster, self.redaction, folder)

    def _record_folder(self) -> Path | None:
        return Path(self.config.option.record) if self.config.option.record else None


def noting(mounted: set[Source], keep: Callable[[NodeEvidence], None]) -> Callable[[NodeEvidence], None]:
    """`keep`, which also takes note of what a node mounts: AWS is asked for those file systems."""

    def note(evidence: NodeEvidence) -> None:
        mounted.update(sources_of(evidence))
        keep(evidence)

    return note


def redaction(cluster: Cluster) -> Redaction:
    """The words that stand for the cluster's names."""
    from clusterproof.plugins.redact import Redaction  # few runs need it, and it compiles many patterns

    return Redaction(cluster)
