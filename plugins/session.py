"""A run: gathers the evidence once, before the first check, and hands it to every worker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.aws import leaf as aws
from clusterproof.plugins.aws.account import Account, AwsError
from clusterproof.plugins.aws.mounted import SETTING, Source, as_setting, sources_of
from clusterproof.plugins.collect import (
    CheckItem,
    control_leaves_of,
    expand_pairs,
    leaves_of,
    needs_pairs,
)
from clusterproof.plugins.connection import Connection, Limits, Unusable, connection_for
from clusterproof.plugins.connection.submit_host import submit_host
from clusterproof.plugins.evidence import Leaf, NodeEvidence, Status
from clusterproof.plugins.facts.fact import ONLY_CAPTURED
from clusterproof.plugins.facts.window import window
from clusterproof.plugins.gather import gather, replay
from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.inventory.recording import read_control_plane, write_cluster, write_control_plane, write_node
from clusterproof.plugins.load import command_line
from clusterproof.plugins.load.options import LEAVES
from clusterproof.plugins.nodeset import fold
from clusterproof.plugins.options import log_cursor, window_minutes
from clusterproof.plugins.policy.model import NO_POLICY
from clusterproof.plugins.probe.options import ProbeOptions, leaf_names
from clusterproof.plugins.progress import progress
from clusterproof.plugins.slurm.asked import ask_slurm
from clusterproof.plugins.state import (
    CLUSTER,
    CONTROL_PLANE,
    EVIDENCE,
    PAIRWISE,
    POLICY,
    SLURM_LEAF,
    is_of_aws,
    is_of_slurm,
)

if TYPE_CHECKING:
    from clusterproof.plugins.capture.collection import Understood
    from clusterproof.plugins.redact import Redaction

PAIRS_FILES = "pairwise*.jsonl"  # what a recording has of pairs
ALWAYS = frozenset({"boot", "platform"})  # what every report says of a node, whatever is checked


class Session:
    """The plugin object of a run over one cluster."""

    def __init__(self, config: pytest.Config, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
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

    @cached_property
    def captured(self) -> tuple[Understood, ...]:
        """What the files of a capture tell of each node, read once; nothing where the cluster is none."""
        if self.cluster.connection != "capture":
            return ()
        from clusterproof.plugins.capture.collection import read_capture  # many forms: only captures need them

        return read_capture(Path(self.cluster.settings["capture"]), self.cluster, leaf_names())

    def _not_understood(self) -> list[str]:
        """Name the files of a capture that nobody understood."""
        if not self.captured:
            return []
        from clusterproof.plugins.capture.collection import not_understood

        return list(not_understood(self.captured, is_redacted=self.redaction is not None))

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
            loads = command_line.leaves_of_packaged(self.config.option)
            self.gather(frozenset(leaf_names()), of_control_plane, Path(self.shared.name), loads)
            if command_line.needs_pairs_of_packaged(self.config.option):
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
                needed(items) - ONLY_CAPTURED - LEAVES,
                control_leaves_of_all(items, self.cluster),
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
                self._ask(leaves, loads, noting(mounted, learn))
        else:
            self._ask(leaves, loads, noting(mounted, keep))
        if control_leaves:
            told = self._ask_control_plane(control_leaves, mounted)
            self.config.stash[CONTROL_PLANE] = self.redaction.of_control_plane(told) if self.redaction else told
            for folder in folders:
                write_control_plane(folder, self.config.stash[CONTROL_PLANE])

    def measure_pairs(self, shared: Path | None) -> None:
        """Measure between nodes, or read what a recording has of that; workers find it in `shared`."""
        from clusterproof.plugins.pairwise import of_session as of_pairs  # few runs measure pairs

        if PAIRWISE not in self.config.stash and self.cluster.connection not in ("replay", "capture"):
            self.config.stash[PAIRWISE] = of_pairs.measured(
                self.config, self.cluster, self._connection(), self._limits(), self.redaction
            )
        if shared and PAIRWISE in self.config.stash:
            of_pairs.write_journals(self.config.stash[PAIRWISE], shared)

    def _replay_pairs(self, folder: Path) -> None:
        """Read what a recording has of pairs, if it has any: then each of them gets a test."""
        if any(folder.glob(PAIRS_FILES)):
            from clusterproof.plugins.pairwise.of_session import read_again

            self.config.stash[PAIRWISE] = read_again(self.config, self.cluster, self.redaction, folder)

    def _ask_control_plane(self, leaves: frozenset[str], mounted: set[Source]) -> NodeEvidence:
        """What AWS and Slurm tell of the cluster, and AWS of the file systems that its nodes mount."""
        if self.cluster.connection == "replay":
            return read_control_plane(Path(self.cluster.settings["recording"]), self.cluster.name)
        of_aws = leaves - {SLURM_LEAF} if is_of_aws(self.cluster) else frozenset[str]()
        told = self._ask_aws(of_aws, mounted) if of_aws else NodeEvidence(self.cluster.name)
        if SLURM_LEAF not in leaves or not is_of_slurm(self.cluster):
            return told
        return replace(told, leaves={**told.leaves, **ask_slurm(submit_host(self.cluster.settings), self._limits())})

    def _ask_aws(self, leaves: frozenset[str], mounted: set[Source]) -> NodeEvidence:
        settings = self.cluster.settings
        try:
            account = Account(settings["region"], settings.get("profile", ""))
        except AwsError as problem:
            broke = Leaf(Status.BROKE, detail=str(problem))
            return NodeEvidence(self.cluster.name, dict.fromkeys(leaves, broke))
        asked = {SETTING: as_setting(mounted), "fsx_window_minutes": str(window_minutes(self.config.option.fsx_window))}
        return aws.ask(account, replace(self.cluster, settings={**settings, **asked}), leaves)

    def _ask(self, leaves: frozenset[str], loads: frozenset[str], keep: Callable[[NodeEvidence], None]) -> None:
        """Hand every node's answer to `keep`, as it comes; where nothing is asked of them, no node is."""
        if not leaves:
            return
        if self.cluster.connection == "replay":
            for evidence in replay(Path(self.cluster.settings["recording"]), self.cluster).values():
                keep(evidence)
            return
        if self.cluster.connection == "capture":
            for node in self.captured:
                keep(node.evidence)
            return
        with progress(self.config, self.cluster) as shown:

            def told(evidence: NodeEvidence) -> None:
                keep(evidence)
                shown(evidence)

            try:
                answered = gather(
                    self.cluster,
                    self._connection(),
                    leaves,
                    self._probe_options(),
                    self._limits(),
                    told,
                    self._further_leaves(),
                )
            except Unusable as problem:
                raise pytest.UsageError(str(problem)) from None
        if loads:
            from clusterproof.plugins.load.visit import load_nodes  # few runs load anything

            load_nodes(self.config, self.cluster, self._connection(), self._limits(), loads, answered, keep)

    def _connection(self) -> Connection:
        found = self.config.hook.pytest_cluster_connection(config=self.config, cluster=self.cluster)
        return found or connection_for(self.cluster.connection)

    def _further_leaves(self) -> list[Path]:
        """Files of third parties, each a leaf of the probe."""
        told = self.config.hook.pytest_cluster_probe_leaves(config=self.config)
        return [Path(path) for paths in told for path in paths]

    def _probe_options(self) -> ProbeOptions:
        option = self.config.option
        return ProbeOptions(
            host_root=option.host_root,
            leaf_s=option.probe_timeout,
            sudo=option.sudo,
            checkpoints=self.config.stash.get(POLICY, NO_POLICY).checkpoints,
            log_cursor=log_cursor(option.log_cursor),
        )

    def _limits(self) -> Limits:
        option = self.config.option
        settings = dict(self.cluster.settings)
        if option.accept_new_host_keys:
            settings["accept_new_host_keys"] = "yes"
        settings |= {key: str(told) for key in ("ssm_rate", "ssm_output") if (told := getattr(option, key))}
        return Limits(
            fanout=option.fanout,
            connect_s=option.connect_timeout,
            answer_s=option.answer_timeout or 15 + 3 * option.probe_timeout,
            settings=settings,
        )

    def _record_folder(self) -> Path | None:
        return Path(self.config.option.record) if self.config.option.record else None


def needed(items: list[pytest.Item]) -> frozenset[str]:
    """The leaves that nodes are asked for; none where every check is of the cluster and looks at no node."""
    of_nodes = [ALWAYS for item in items if not (isinstance(item, CheckItem) and item.check.is_of_cluster)]
    of_pairs = [OF_TYPES for item in items if needs_pairs(item)]
    leaves = frozenset[str]().union(*of_nodes[:1], *of_pairs[:1], *(leaves_of(item) for item in items))
    return leaves | ALWAYS if leaves else leaves


OF_PLACES = frozenset({"hyperpod_nodes", "zones", "instances", "instance_topology"})  # what tells where nodes stand
OF_TYPES = frozenset({"imds", "platform", "resource_config", "rdma", "nvml", "versions"})


def control_leaves_of_all(items: list[pytest.Item], cluster: Cluster) -> frozenset[str]:
    """What the control plane is asked for, where nodes stand included if pairs of them are measured."""
    asked = frozenset[str]().union(*(control_leaves_of(item) for item in items))
    if any(needs_pairs(item) for item in items):
        asked |= OF_PLACES if is_of_aws(cluster) else frozenset[str]()
        asked |= frozenset({SLURM_LEAF}) if is_of_slurm(cluster) else frozenset[str]()
    return asked


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
