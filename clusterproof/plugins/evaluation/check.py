"""A check: a test function for a node, its devices, the cluster or a pair, and its properties known before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusterproof.plugins.core.marks import Mark
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import CLUSTER_SUBJECTS, MEMBER_SUBJECT, RUN_SUBJECTS
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any, Protocol
from clusterproof.plugins.evaluation.routing import Route, route
from clusterproof.plugins.evidence.node import Node

if TYPE_CHECKING:
    import pytest

# The argument of a light check says what it is called for: once for the node, or once for each of its devices. A check
# of devices may also ask for the node.
SUBJECTS: dict[str, Callable[[Node], Iterable[Any]]] = {
    "node": lambda node: (node,),
    "gpu": lambda node: node.gpus,
    "pci_device": lambda node: node.pci_devices,
    "efa_device": lambda node: node.efa_devices,
    "ib_device": lambda node: node.ib_devices,
    "mount": lambda node: node.mounts,
    "lustre_client": lambda node: node.lustre_clients,
    "ost": lambda node: node.osts,
    "mdt": lambda node: node.mdts,
    "nvme": lambda node: node.nvme_controllers,
    "neuron_device": lambda node: node.neuron_devices,
}
# The same for two nodes that were measured together.
SUBJECTS_OF_PAIR: dict[str, Callable[[Any], Iterable[Any]]] = {"pair": lambda pair: pair.subjects}


def _file_systems(cluster: Any) -> Iterable[Any]:
    from clusterproof.plugins.evidence.aws.mounted_fsx import file_systems  # no node has any

    return file_systems(cluster)


# Once for the cluster, for each thing that the cluster has, or for each node as its control plane reports it.
SUBJECTS_OF_CLUSTER: dict[str, Callable[[Any], Iterable[Any]]] = {
    "cluster": lambda cluster: (cluster,),
    "file_system": _file_systems,
    MEMBER_SUBJECT: lambda owner: (owner.member,),
}
# Once for a training run, or for each of its ranks.
SUBJECTS_OF_RUN: dict[str, Callable[[Any], Iterable[Any]]] = {"run": lambda run: (run,), "rank": lambda run: run.ranks}
ALL_SUBJECTS = {**SUBJECTS, **SUBJECTS_OF_PAIR, **SUBJECTS_OF_CLUSTER, **SUBJECTS_OF_RUN}
WHOLE_SUBJECTS = ("node", "cluster", "run")  # subjects that are a whole, not a device of one
UNLABELLED = (*WHOLE_SUBJECTS, *SUBJECTS_OF_PAIR, MEMBER_SUBJECT)
DEVICES = {
    "gpu": "NVIDIA GPU",
    "pci_device": "GPU, network adapter or NVMe controller on the PCI bus",
    "efa_device": "EFA device",
    "ib_device": "InfiniBand or RoCE device",
    "mount": "mount",
    "file_system": "FSx file system",
    "lustre_client": "connection to a Lustre server",
    "ost": "Lustre OST",
    "mdt": "Lustre MDT",
    "nvme": "NVMe controller",
    "neuron_device": "Neuron device",
    "rank": "rank",
}
COUNTED = {"gpu": "gpus", "efa_device": "efa"}  # devices whose number a node's expectations state


class CheckOwner(Protocol):
    """What a result is about: a node, a pair of nodes, or the cluster."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type_name(self) -> str:
        """Its instance type, else empty."""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of its GPUs."""


@record
class Check:
    """A light check and what is known about it before it runs."""

    function: Callable[..., object]
    subject: str
    wants_owner: bool  # whether it takes its node or cluster besides the device
    route: Route
    path: str
    line: int

    @property
    def collectors(self) -> frozenset[str]:
        """The node collectors that it needs."""
        from clusterproof.plugins.evaluation.needs import node_collectors

        return self.needs & node_collectors()

    @property
    def control_collectors(self) -> frozenset[str]:
        """The control-plane collectors that it needs; none for a check of a node."""
        from clusterproof.plugins.evaluation.needs import control_plane_collectors

        return self.needs & control_plane_collectors() if self.is_of_cluster else frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """The collectors that it reads, and `pairwise` if it uses measurements of pairs."""
        if self.is_of_run or self.is_of_pair:
            return frozenset()
        from clusterproof.plugins.evaluation.needs import needs_of  # a prolog reads it from the index

        return needs_of(self.route.check, self.subject, self.function)

    @property
    def is_of_cluster(self) -> bool:
        """Whether it uses control-plane evidence: run once for the cluster, or for each member."""
        return self.is_of_member or self.subject in CLUSTER_SUBJECTS

    @property
    def is_of_member(self) -> bool:
        """Whether it runs for each node, on what the control plane reports about it."""
        return self.subject == MEMBER_SUBJECT

    @property
    def is_of_run(self) -> bool:
        """Whether it runs once for the training run that `--run` names."""
        return self.subject in RUN_SUBJECTS

    @property
    def is_of_pair(self) -> bool:
        """Whether it runs for each measured pair of nodes."""
        return self.subject in SUBJECTS_OF_PAIR

    @property
    def needs_pairs(self) -> bool:
        """Whether it needs pairs of nodes to be measured."""
        return self.is_of_pair or "pairwise" in self.needs


def check_of(function: Callable[..., Any], marks: Iterable[Mark | pytest.Mark]) -> Check:
    """Make the check of a test function; `is_light` must hold for it."""
    import inspect  # slow to import, and not needed for a check from the index

    parameters = tuple(inspect.signature(function).parameters)
    subject = next((name for name in parameters if name not in WHOLE_SUBJECTS), parameters[0])
    code = inspect.unwrap(function).__code__
    return Check(
        function,
        subject,
        len(parameters) == 2,
        route(function, marks),
        code.co_filename,
        code.co_firstlineno - 1,
    )


def is_light(function: Callable[..., Any]) -> bool:
    """Whether a function takes only a node, its devices one by one, or both; or the like for a cluster, pair or run."""
    from inspect import signature

    parameters = signature(function).parameters.keys()
    if parameters and SUBJECTS_OF_PAIR.keys() >= parameters:
        return True
    kinds = (
        (SUBJECTS.keys(), "node"),
        ({*CLUSTER_SUBJECTS, MEMBER_SUBJECT}, "cluster"),
        (frozenset(RUN_SUBJECTS), "run"),
    )
    return any(
        subjects >= parameters and len(parameters - {whole}) <= 1 <= len(parameters) for subjects, whole in kinds
    )


def subjects_of(check: Check, owner: Any) -> Iterable[Any]:
    """The subjects that the check is called for. Raises Incomplete, NotApplicable."""
    return ALL_SUBJECTS[check.subject](owner)


NO_VERDICT = "what it returns is not a verdict; expected an assert"


def call(check: Check, subject: Any, owner: Any) -> None:
    """Call the test function for one subject; it returns or raises its verdict."""
    arguments = {check.subject: subject}
    if check.wants_owner:
        arguments[_OWNERS.get(check.subject, "node")] = owner.cluster if check.subject == MEMBER_SUBJECT else owner
    if check.function(**arguments) is not None:
        raise TypeError(NO_VERDICT)


_OWNERS = {**dict.fromkeys((MEMBER_SUBJECT, *CLUSTER_SUBJECTS), "cluster"), **dict.fromkeys(RUN_SUBJECTS, "run")}
