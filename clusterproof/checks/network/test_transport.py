"""The transport that jobs will use: what their environment makes NCCL and libfabric do, and memory to lock."""

from __future__ import annotations

from itertools import product

from clusterproof.plugins.catalog.node import EnvironmentRule, environment_rules
from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts import Variable, chosen_interfaces

pytestmark = [mark.network, mark.preflight, mark.ami]


@mark.hyperpod_nccl("13")
@evidence("grep -rE 'NCCL_|FI_' /etc/environment /etc/profile.d /etc/nccl.conf $(grep -i TaskProlog slurm.conf)")
def test_transport_plan(node: Node) -> None:
    """NCCL and libfabric variables of jobs.

    Variables are read from /etc/environment, /etc/profile.d, /etc/nccl.conf and what Slurm's TaskProlog prints. Which
    of them a job really gets depends on how it is started, and a container may set its own.

    Remedy (fix configuration): Remove the variable from the file that is named; EFA's plugin for NCCL sets what it
    needs by itself.
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
                assert rule.verdict != "fail" or variable.conditional, seen
                concern(seen)
    for variable in filter(_names_interfaces, variables):
        seen, names = f"{_setting(variable)} chooses no interface of this node", node.interface_names
        concern_if(not chosen_interfaces(variable.value, names), f"{seen}; expected one of {', '.join(names[:8])}")


def _is_overridden(variable: Variable, others: tuple[Variable, ...]) -> bool:
    """Whether the same file sets it again further down, whatever happens."""
    return any(
        other.file == variable.file
        and other.name == variable.name
        and other.line > variable.line
        and not other.conditional
        for other in others
    )


def _applies(rule: EnvironmentRule, node: Node) -> bool:
    """Whether a rule applies to this node. Raises Incomplete where that is unknown."""
    if rule.where == "always":
        return True
    if rule.where in ("efa", "no-efa"):
        return _has_efa(node) == (rule.where == "efa")
    if not _has_efa(node):  # then it is only known for a type whose devices would have no RDMA
        return rule.where == "no-rdma-read" and not node.is_outside_ec2 and _known(node).rdma_read is False
    if rule.where == "rdma":
        return bool(node.type.rdma)
    return not (node.type.rdma or node.type.rdma_read) and node.of_type("rdma_read") is False


def _has_efa(node: Node) -> bool:
    return bool(node.efa_devices) or node.expected("efa") > 0


def _known(node: Node) -> InstanceType:
    """What the catalogue knows about its instance type, if anything."""
    try:
        return node.type
    except Incomplete:
        return InstanceType(name=node.type_name, source="")


def _names_interfaces(variable: Variable) -> bool:
    return variable.name == "NCCL_SOCKET_IFNAME" and bool(variable.value) and "$" not in variable.value


def _setting(variable: Variable) -> str:
    sometimes = ", on a condition" if variable.conditional else ""
    return f"{variable.name}={variable.value[:80]} ({variable.where}{sometimes})"


@mark.prolog
@mark.job
@mark.hyperpod_nccl("17")
@evidence("ulimit -l; grep 'locked memory' /proc/$(pgrep -o slurmd)/limits")
def test_memlock(node: Node) -> None:
    """Locked memory limit.

    RDMA pins the memory that it sends from. Jobs inherit the limit of the daemon that starts them, not that of a login.

    Remedy (fix configuration): Set memlock to unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity in the
    daemon's unit; restart it.
    """
    if not node.rdma_devices and node.expected("efa") == 0:
        not_applicable("no EFA, InfiniBand or RoCE device on this node")
    least_gib = node.threshold("memlock.minimum_gib")
    limits = each(node.process_limits.items(), lambda one: (one[0], one[1].soft("memlock")))
    little = [(name, limit) for name, limit in limits if limit is not None and limit < least_gib * 2**30]
    seen = ", ".join(f"{in_words(limit)} for {name}" for name, limit in little)
    assert not seen, f"memlock is {seen}; expected at least {least_gib:g} GiB, or unlimited"


def in_words(size: int) -> str:
    """Bytes in KiB, or in MiB from one on."""
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"
