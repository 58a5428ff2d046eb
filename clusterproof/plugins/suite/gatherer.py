"""Asks every node once, and the cluster's control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins import agent
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.aws import NO_CREDENTIALS, Account, AwsError
from clusterproof.plugins.aws import collectors as aws
from clusterproof.plugins.core.cluster import Cluster, InventoryError, is_of_aws, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.strict import read_text
from clusterproof.plugins.evaluation.needs import node_collectors
from clusterproof.plugins.evidence.aws.by_evidence import Instances, may_be_on_ec2
from clusterproof.plugins.evidence.aws.mounted_fsx import SETTING, Source, as_setting, sources_of
from clusterproof.plugins.evidence.cluster import NOT_OF_AWS, SLURM_COLLECTOR
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS as OF_KUBERNETES
from clusterproof.plugins.evidence.recording import read_control_plane
from clusterproof.plugins.kubernetes import HOST
from clusterproof.plugins.options.validate import log_cursor, window_minutes
from clusterproof.plugins.suite.run_loop import frozen_afterwards
from clusterproof.plugins.suite.state import policy_of
from clusterproof.plugins.suite.terminal import progress
from clusterproof.plugins.transport import Connection, Limits, Unusable, adopted, connection_for
from clusterproof.plugins.transport.gather import gather, replayed
from clusterproof.plugins.transport.srun import ask_slurm, submit_host

if TYPE_CHECKING:
    from clusterproof.plugins.captures.collection import Understood


_OF_KUBERNETES = (
    "k8s_namespace",
    "k8s_image",
    "k8s_every",
    "k8s_keep",
    "k8s_perf_image",
)  # options that are its settings
UNNAMED_S = 30.0  # for AWS to answer about nodes that an inventory without AWS names: it may be unreachable


@dataclass(slots=True)
class Discovered:
    """What nodes report that AWS is asked about: the file systems that they mount, and their instance ids."""

    mounted: set[Source] = field(default_factory=set)
    instances: Instances = field(default_factory=Instances)

    def before(self, keep: Callable[[NodeEvidence], None]) -> Callable[[NodeEvidence], None]:
        """A callback that records the node, then calls `keep`."""

        def note(evidence: NodeEvidence) -> None:
            self.mounted.update(sources_of(evidence))
            self.instances.note(evidence)
            keep(evidence)

        return note


def collector_files(paths: Iterable[Path]) -> list[Path]:
    """The files of third-party collectors, each once.

    Raises InventoryError for one that cannot be read, or whose name another module of the probe has.
    """
    files: dict[str, Path] = {}
    of_probe = node_collectors().union(path.stem for path in Path(agent.__path__[0]).glob("*.py"))
    for path in dict.fromkeys(paths):
        read_text(path, "a Python file with read(node) (docs/extend.md)")
        if path.stem in of_probe:
            raise InventoryError(f"{path}: clusterproof itself has a {path.stem}; expected another name of the file")
        if path.stem in files:
            raise InventoryError(f"{files[path.stem]} and {path} have the same name; expected a name for each")
        files[path.stem] = path
    return list(files.values())


class Gatherer:
    """Asks the nodes of a cluster, and its control plane, for a run."""

    def __init__(self, config: pytest.Config, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        policy = policy_of(config)
        self.checkpoints, self.mounts = policy.checkpoints, policy.mounts  # sent to the nodes

    @cached_property
    def captured(self) -> tuple[Understood, ...]:
        """The files of a capture for each node, read once; empty if the cluster is not a capture."""
        if self.cluster.connection != "capture":
            return ()
        from clusterproof.plugins.captures.collection import read_capture  # many formats: only captures need them

        return read_capture(Path(self.cluster.settings["capture"]), self.cluster, collector_names())

    def nodes(self, collectors: frozenset[str], loads: frozenset[str], keep: Callable[[NodeEvidence], None]) -> None:
        """Pass every node's answer to `keep` as it arrives; nodes are not contacted if nothing is asked of them.

        Raises pytest.UsageError if they cannot be asked.
        """
        if not collectors:
            return
        if self.cluster.connection == "replay":
            with frozen_afterwards(self.config):  # evidence lives to the end, and JSON has no cycles
                for evidence in replayed(Path(self.cluster.settings["recording"]), self.cluster):
                    keep(evidence)
            return
        if self.cluster.connection == "capture":
            for node in self.captured:
                keep(node.evidence)
            return
        with progress(self.config, self.cluster) as shown:

            def note(evidence: NodeEvidence) -> None:
                keep(evidence)
                shown(evidence)

            try:
                answered = gather(
                    self.cluster,
                    self.connection(),
                    collectors,
                    self._probe_options(),
                    self.limits(),
                    note,
                    self._further_collectors(),
                )
            except (Unusable, InventoryError) as problem:
                raise pytest.UsageError(str(problem)) from None
        if loads:
            from clusterproof.plugins.suite.perf.session import load_nodes  # few runs load anything

            load_nodes(self.config, self.cluster, self.connection(), self.limits(), loads, answered, keep)

    def control_plane(self, collectors: frozenset[str], discovered: Discovered) -> NodeEvidence:
        """What AWS, Slurm and Kubernetes report about the cluster, and AWS about the file systems that nodes mount."""
        if self.cluster.connection == "replay":
            return read_control_plane(Path(self.cluster.settings["recording"]), self.cluster.name)
        if self.cluster.connection == "capture":
            from clusterproof.plugins.captures.several import control_plane  # as above

            return control_plane(
                self.cluster.name, {capture.evidence.node: capture.in_kubernetes for capture in self.captured}
            )
        of_aws, of_kubernetes = collectors - NOT_OF_AWS, collectors & OF_KUBERNETES
        evidence = self._aws(of_aws, discovered) if of_aws else NodeEvidence(self.cluster.name)
        answers = dict(evidence.collectors)
        if SLURM_COLLECTOR in collectors and is_of_slurm(self.cluster):
            answers |= ask_slurm(submit_host(self.cluster.settings), self.limits())
        if of_kubernetes and is_of_kubernetes(self.cluster):
            from clusterproof.plugins.kubernetes.collectors import ask  # few clusters run Kubernetes

            answers |= ask(self.cluster, of_kubernetes)
        return replace(evidence, collectors=answers)

    def _aws(self, collectors: frozenset[str], discovered: Discovered) -> NodeEvidence:
        """What AWS reports about its cluster, or about nodes that turned out to be EC2 instances; else nothing."""
        if is_of_aws(self.cluster):
            return self._from_aws(self.cluster, collectors, discovered, aws.COLLECTOR_S)
        instances, option = discovered.instances, self.config.option
        if not (may_be_on_ec2(self.cluster) and (instances.identities or instances.nameless)):
            return NodeEvidence(self.cluster.name)
        seen = instances.cluster(self.cluster, option.region or "")
        seen = replace(seen, settings={**seen.settings, "profile": option.profile or ""})
        return self._from_aws(seen, collectors, discovered, UNNAMED_S)

    def _from_aws(
        self, cluster: Cluster, collectors: frozenset[str], discovered: Discovered, timeout_s: float
    ) -> NodeEvidence:
        settings = cluster.settings
        try:
            account = Account(settings.get("region", ""), settings.get("profile", ""))
            account.require_credentials()
        except AwsError as problem:
            was_named = is_of_aws(self.cluster) or settings.get("profile")  # otherwise no AWS credentials are expected
            status = Status.BROKE if was_named or problem.code != NO_CREDENTIALS else Status.NOT_ASKED
            return NodeEvidence(cluster.name, dict.fromkeys(collectors, Collected(status, detail=str(problem))))
        window = str(window_minutes(self.config.option.fsx_window))
        further_settings = {SETTING: as_setting(discovered.mounted), "fsx_window_minutes": window}
        return aws.ask(account, replace(cluster, settings={**settings, **further_settings}), collectors, timeout_s)

    def connection(self) -> Connection:
        """The connection to the nodes: a third party's, or the one that the cluster names. Raises pytest.UsageError."""
        connection = self.config.hook.pytest_cluster_connection(config=self.config, cluster=self.cluster)
        try:
            return adopted(connection) if connection else connection_for(self.cluster.connection)
        except LookupError as unknown:
            raise pytest.UsageError(f"{unknown}; expected one of them, or one of pytest_cluster_connection") from None

    def _further_collectors(self) -> list[Path]:
        """Third-party files, each a collector of the probe. Raises pytest.UsageError."""
        try:
            return collector_files(self._named_collectors())
        except InventoryError as problem:
            raise pytest.UsageError(f"pytest_cluster_collectors: {problem}") from None

    def _named_collectors(self) -> Iterator[Path]:
        for paths in self.config.hook.pytest_cluster_collectors(config=self.config):
            yield from map(Path, paths)

    @property
    def further_names(self) -> frozenset[str]:
        """The names of third-party collectors."""
        return frozenset(path.stem for path in self._named_collectors())

    def _probe_options(self) -> ProbeOptions:
        option = self.config.option
        return ProbeOptions(
            host_root=HOST if self._is_in_image() else option.host_root,
            collector_s=option.probe_timeout,
            in_container=option.in_container,
            sudo=option.sudo,
            checkpoints=self.checkpoints,
            mounts=self.mounts,
            log_cursor=log_cursor(option.log_cursor),
        )

    def _is_in_image(self) -> bool:
        """Whether the probe runs in an image, with the host's files in a subfolder."""
        return self.cluster.connection == "kubernetes" and bool(self.config.option.k8s_image)

    def limits(self) -> Limits:
        """The connection's limits and settings from the command line."""
        option = self.config.option
        settings = dict(self.cluster.settings)
        if option.accept_new_host_keys:
            settings["accept_new_host_keys"] = "yes"
        settings |= {
            key: str(value)
            for key in ("ssm_rate", "ssm_output", "mpirun_options", *_OF_KUBERNETES)
            if (value := getattr(option, key))
        }
        return Limits(
            fanout=option.fanout,
            connect_s=option.connect_timeout,
            answer_s=option.answer_timeout or 15 + 3 * option.probe_timeout,
            settings=settings,
        )
