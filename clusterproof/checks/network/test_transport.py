"""Environment variables that select NCCL's and libfabric's transport, and the limit of locked memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product

from clusterproof.plugins.catalog.node import EnvironmentRule, environment_rules
from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern,
    concern_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.group import Values, describe, differences
from clusterproof.plugins.evidence.network.facts import INFINIBAND
from clusterproof.plugins.evidence.network.facts_node import has_efa
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts import LOCAL, Variable, chosen_adapters, chosen_interfaces

pytestmark = [mark.network, mark.preflight, mark.ami]


@mark.hyperpod_nccl("13")
@evidence("grep -rE 'NCCL_|FI_' /etc/environment /etc/profile.d /etc/nccl.conf $(grep -i TaskProlog slurm.conf)")
def test_transport_plan(node: Node) -> None:
    """NCCL and libfabric variables of jobs.

    Reads variables from /etc/environment, /etc/profile.d, /etc/nccl.conf and the output of Slurm's TaskProlog. Which of
    them a job gets depends on how it is started, and a container may set its own. They are also compared with the other
    nodes: if they differ, the ranks of a job may not agree on how to communicate, or some use fewer network devices.

    Remedy (fix configuration): Remove the variable from the file shown. EFA's NCCL plugin sets what it needs by itself.
    """
    with part:
        unread = ", ".join(node.environment_unread)
        if unread:
            incomplete(f"could not be read: {unread}")
    variables = [variable for variable in node.environment if not _is_overridden(variable, node.environment)]
    for variable, rule in product(variables, environment_rules().values()):
        with part:
            if rule.matches(variable.name, variable.value) and _applies(rule, node):
                seen = f"{_setting(variable)}: {rule.words}; expected {rule.expected}"
                assert rule.verdict != "fail" or readings(variable, "conditional")[0].get("conditional", True), seen
                concern(seen)
    for variable in variables:
        if variable.name in CHOICES and "$" not in variable.value:
            with part:
                CHOICES[variable.name](variable, node)
    with suppress(NotApplicable):
        deviations = differences(node, "variables of jobs", _as_far_as_known, absent=NOT_SET)
        concern_if(deviations, describe(deviations))
    with suppress(NotApplicable):
        deviations = differences(node, "devices of jobs", _chosen_devices, absent=None)
        concern_if(deviations, describe(deviations))


NOT_SET = "not set"
IB_HCA = "NCCL_IB_HCA"
OF_A_NODE = ("_IFNAME", "_HCA", "_FILE")  # variables that end so name what is called otherwise on each node


def _set_for_jobs(node: Node) -> Values:
    """The value of each variable that is always set, by name; None for one that is set under a condition."""
    return {
        variable.name: None if variable.conditional else variable.value[:80] or "empty"
        for variable in each(node.environment, _whole)
        if not (variable.name.endswith(OF_A_NODE) or _is_overridden(variable, node.environment))
    }


def _as_far_as_known(node: Node) -> Values:
    """The same, but also None if an unread file may set variables that others have."""
    if readings(node, "environment_unread")[0].get("environment_unread") == ():
        return _set_for_jobs(node)
    values = node.group.values("variables that are read", _set_for_jobs).values()
    return {**{name: None for others in values for name in others}, **_set_for_jobs(node)}


def _whole(variable: Variable) -> Variable:
    """A variable of which everything to compare is known. Raises Incomplete."""
    variable.name, variable.value, variable.conditional  # noqa: B018
    return variable


def evaluate_interfaces(variable: Variable, node: Node) -> None:
    """A concern if NCCL_SOCKET_IFNAME chooses no interface, or none that reaches another node."""
    if not variable.value:
        return
    names = node.interface_names
    chosen, others = chosen_interfaces(variable.value, names), [name for name in names if not name.startswith(LOCAL)]
    expected = f"expected one of {', '.join((others or names)[:8])}"
    concern_if(not chosen, f"{_setting(variable)} chooses no interface of this node; {expected}")
    is_local = chosen and all(name.startswith(LOCAL) for name in chosen)
    seen = f"{_setting(variable)} chooses {', '.join(chosen[:8])}, which reaches no other node"
    concern_if(is_local, f"{seen}; {expected}")


def evaluate_adapters(variable: Variable, node: Node) -> None:
    """A concern if NCCL_IB_HCA chooses no InfiniBand or RoCE device of the node."""
    names = [] if node.efa_devices else [device.name for device in node.ib_devices]
    chosen = chosen_adapters(variable.value, names)
    expected = f"expected one of {', '.join(names[:8])}"
    concern_if(names and not chosen, f"{_setting(variable)} chooses no device of this node; {expected}")


def _chosen_devices(node: Node) -> Values:
    """How many devices of each model NCCL_IB_HCA lists, as devices have other numbers after a change."""
    variables = readings(node, "environment")[0].get("environment", ())
    known_of_all = [readings(variable, "name", "value", "conditional")[0] for variable in variables]
    lists = [
        of["value"] for of in known_of_all if of.get("name") == IB_HCA and "value" in of and not of.get("conditional")
    ]
    if not lists or lists[-1].startswith("^") or node.efa_devices:
        return {}
    models = {device.name: device.model for device in node.ib_devices}
    counts = Counter(models[name] for name in chosen_adapters(lists[-1], models))
    return {f"{IB_HCA} chooses": " and ".join(f"{counts[model]} of {model}" for model in sorted(counts)) or "none"}


def evaluate_visible(variable: Variable, node: Node) -> None:
    """A concern if CUDA_VISIBLE_DEVICES hides GPUs from every job."""
    count, there = len([word for word in variable.value.split(",") if word.strip() not in NO_GPU]), node.gpus_on_bus
    seen = f"{_setting(variable)} hides all but {count} of {len(there)} GPUs from every program"
    concern_if(count < len(there), f"{seen}; expected it unset, except by a scheduler for each job")


NO_GPU = ("", "-1", "NoDevFiles")
CHOICES: Mapping[str, Callable[[Variable, Node], None]] = {
    "NCCL_SOCKET_IFNAME": evaluate_interfaces,
    IB_HCA: evaluate_adapters,
    "CUDA_VISIBLE_DEVICES": evaluate_visible,
}


def _is_overridden(variable: Variable, others: tuple[Variable, ...]) -> bool:
    """Whether the same file is known to set it again further down, without a condition."""
    of_it = _location(variable)
    if of_it is None:
        return False
    locations = (_location(other) for other in others if readings(other, "conditional")[0].get("conditional") is False)
    return any(location[:2] == of_it[:2] and location[2] > of_it[2] for location in locations if location)


def _location(variable: Variable) -> tuple[str, str, int] | None:
    """Its file, name and line; None if they are not known."""
    reported, unread = readings(variable, "file", "name", "line")
    return None if unread else (reported["file"], reported["name"], reported["line"])


def _applies(rule: EnvironmentRule, node: Node) -> bool:
    """Whether a rule applies to this node. Raises Incomplete if that is unknown."""
    if rule.where == "always":
        return True
    if rule.where in ("nvlink", "no-nvlink"):
        has_gpus = readings(node, "gpus_on_bus")[0].get("gpus_on_bus") != ()
        return has_gpus and bool(node.nvlinks_due) == (rule.where == "nvlink")
    if rule.where in ("efa", "no-efa"):
        return has_efa(node) == (rule.where == "efa")
    if rule.where == "fabric":
        return _uses_rdma(node)
    if rule.where in ("infiniband", "roce"):
        layers = set() if node.efa_devices else node.active_link_layers
        return (INFINIBAND in layers) == (rule.where == "infiniband") and bool(layers)
    if not has_efa(node):  # then it is only known for a type whose devices would have no RDMA
        return rule.where == "no-rdma-read" and not node.is_outside_ec2 and _known(node).rdma_read is False
    if rule.where == "rdma":
        return bool(node.type.rdma)
    return not (node.type.rdma or node.type.rdma_read) and node.of_type("rdma_read") is False


def _known(node: Node) -> InstanceType:
    """What the catalogue knows about its instance type, if anything."""
    try:
        return node.type
    except Incomplete:
        return InstanceType(name=node.type_name, source="")


def _setting(variable: Variable) -> str:
    sometimes = ", on a condition" if known(lambda: variable.conditional, True) else ""
    where = known(lambda: variable.where, "where was not reported")
    return f"{variable.name}={variable.value[:80]} ({where}{sometimes})"


@mark.prolog
@mark.job
@mark.hyperpod_nccl("17")
@evidence("ulimit -l; grep 'locked memory' /proc/$(pgrep -o slurmd)/limits")
def test_memlock(node: Node) -> None:
    """Locked memory limit.

    RDMA pins the memory it sends from. Jobs inherit the limit of the daemon that starts them, not a login shell's.

    Remedy (fix configuration): Set memlock to unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity in the
    daemon's unit, then restart the daemon. For a container: --ulimit memlock=-1.
    """
    if not _uses_rdma(node):
        not_applicable("no EFA, InfiniBand or RoCE device on this node")
    least_gib = node.threshold("memlock.minimum_gib")
    limits = each(node.job_limits.items(), lambda item: (item[0], item[1].soft("memlock")))
    little = [(name, limit) for name, limit in limits if limit is not None and limit < least_gib * 2**30]
    seen = ", ".join(f"{size_in_words(limit)} for {name}" for name, limit in little)
    assert not seen, f"memlock is {seen}; expected at least {least_gib:g} GiB, or unlimited"


def _uses_rdma(node: Node) -> bool:
    """Whether it has a device that pins memory, or should have one. Raises Incomplete if that is unknown."""
    devices, unread = readings(node, "rdma_devices")
    if devices.get("rdma_devices") or node.expected("efa") > 0:
        return True
    require(unread)
    return False


def size_in_words(size: int) -> str:
    """A number of bytes in KiB, or from 1 MiB on in MiB."""
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"
