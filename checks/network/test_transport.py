"""The transport that jobs will use: what their environment makes NCCL and libfabric do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from clusterproof.plugins.catalog.environment import EnvironmentRule, environment_rules
from clusterproof.plugins.core.instance_type import InstanceType
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, incomplete
from clusterproof.plugins.evidence.field import require
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts_environment import Variable, chosen_interfaces
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.network, mark.preflight, mark.ami, mark.hyperpod_nccl("13")]


@evidence("grep -rE 'NCCL_|FI_' /etc/environment /etc/profile.d /etc/nccl.conf $(grep -i TaskProlog slurm.conf)")
def test_transport_plan(node: Node) -> None:
    """NCCL and libfabric variables of jobs.

    Variables are read from /etc/environment, /etc/profile.d, /etc/nccl.conf and what Slurm's TaskProlog prints. Which
    of them a job really gets depends on how it is started, and a container may set its own.

    Remedy (fix configuration): Remove the variable from the file that is named; EFA's plugin for NCCL sets what it
    needs by itself.
    """
    variables = [variable for variable in node.environment if not _is_overridden(variable, node.environment)]
    broken, unsure = _broken(variables, node)
    failing = [(variable, rule) for variable, rule in broken if rule.verdict == "fail" and not variable.conditional]
    assert not failing, _in_words(failing)
    require(unsure)
    if node.environment_unread:
        incomplete(f"could not be read: {', '.join(node.environment_unread)}")
    absent = [variable for variable in variables if _names_no_interface(variable, node)]
    if broken or absent:
        concern(_in_words(broken, absent, node.interface_names))


Broken: TypeAlias = list[tuple[Variable, EnvironmentRule]]


def _broken(variables: list[Variable], node: Node) -> tuple[Broken, list[Incomplete | NotApplicable]]:
    """The rules that a node's variables break, and why it is unknown whether others apply to this node."""
    broken: Broken = []
    unsure: list[Incomplete | NotApplicable] = []
    for variable in variables:
        for rule in environment_rules().values():
            try:
                if rule.matches(variable.name, variable.value) and _applies(rule, node):
                    broken.append((variable, rule))
            except Incomplete as why:
                unsure.append(why)
    return broken, unsure


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


def _names_no_interface(variable: Variable, node: Node) -> bool:
    return (
        variable.name == "NCCL_SOCKET_IFNAME"
        and bool(variable.value)
        and "$" not in variable.value
        and not chosen_interfaces(variable.value, node.interface_names)
    )


def _in_words(broken: Broken, absent: Iterable[Variable] = (), interfaces: Sequence[str] = ()) -> str:
    observed = [f"{_setting(variable)}: {rule.words}" for variable, rule in broken]
    observed += [f"{_setting(variable)} chooses no interface of this node" for variable in absent]
    expected = [rule.expected for _, rule in broken] + [f"one of {', '.join(interfaces[:8])}" for _ in absent]
    return f"{', '.join(observed)}; expected {', '.join(dict.fromkeys(expected))}"


def _setting(variable: Variable) -> str:
    sometimes = ", on a condition" if variable.conditional else ""
    return f"{variable.name}={variable.value[:80]} ({variable.where}{sometimes})"
