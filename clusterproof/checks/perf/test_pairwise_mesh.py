"""Connectivity of RDMA devices: which device, node, rail or path carries nothing."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.benchmarks.pairwise.mesh import MIN_PARTNERS
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import by_hand, evidence
from clusterproof.plugins.evidence.exchanges import MeshFinding, MeshKind, describe_rails
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import Failure, Measurement
from clusterproof.plugins.evidence.perf.facts_node import pairs_if_known

pytestmark = [mark.network, mark.perf, mark.hyperpod_performance_debugger("A")]

SHARED = (MeshKind.RAIL, MeshKind.SWITCH, MeshKind.ALL)


def of_devices(node: Node) -> str:
    """The command for one device, with the node and a partner if they are known."""
    pairs = pairs_if_known(node)
    if pairs is None or pairs.mesh is None:
        return ""
    commands = (measurement.reading.command for measurement in pairs.measured)
    return next(filter(None, commands), pairs.by_hand)


@by_hand(of_devices)
@evidence("fi_pingpong -p efa -e rdm -d DEVICE-rdm on NODE, then on PARTNER: fi_pingpong … NODE; else ibv_rc_pingpong")
def test_rdma_mesh(node: Node) -> None:
    """RDMA connectivity between nodes.

    Before bandwidth is measured, each RDMA device exchanges a few bytes with the same rail's device on at least three
    partners (--meter rdma_mesh). A device or node is named only if two partners that reach others cannot reach it. A
    fault shared by many devices of a rail is attributed to the rail or a switch, and one between two sides to a path;
    then no node is named. Any user of a node can break the exchange, so the result is never more than a concern.

    Remedy (investigate): For one device, check its cable, transceiver and switch port (network.ib_ports,
    network.efa_count). For a rail or a side, check its switch, VLAN and subnet manager, or on EC2 the security group.
    """
    pairs = node.pairwise
    if pairs.mesh is None:
        not_applicable("not asked: --meter rdma_mesh exchanges a few bytes between all RDMA devices")
    measurements = pairs.measurements
    for finding in pairs.mesh.findings:
        with part:
            say_finding(finding)
    if all(measurement.reading.failure is Failure.NO_RDMA for measurement in measurements):
        say_without_devices(node, measurements[-1].reading.problem)
    with part:
        say_named(node.name, measurements)
    if not pairs.mesh.partners:
        problems = (measurement.reading.problem for measurement in measurements)
        why = next(filter(None, problems), "nothing says why")
        incomplete(f"nothing was exchanged with {number_of(pairs.partners, 'partner')}: {why}; expected an exchange")
    with part:
        say_unmet(node.name, measurements)
    if pairs.mesh.partners < MIN_PARTNERS and not pairs.is_one_of_two:
        incomplete(f"exchanged with one partner only; expected at least {MIN_PARTNERS}")


def say_without_devices(node: Node, problem: str) -> None:
    """Say that no node has a device: whether its type has any."""
    try:
        count = node.expected("efa")
    except (Incomplete, NotApplicable):
        count = 0
    if count:
        devices = f"{number_of(count, 'EFA device')}, as a {node.type_name} has"
        incomplete(f"{problem}; expected {devices} (a pod sees those it asks for)")
    not_applicable("neither this node nor its partners have an RDMA device")


def say_named(node: str, measurements: Sequence[Measurement]) -> None:
    """Say that runs with several partners failed and named the node: it did not answer, or cannot start the program."""
    named = [measurement for measurement in measurements if is_named(node, measurement)]
    if len({measurement.pair for measurement in named}) >= MIN_PARTNERS:
        failed = f"{len(named)} of {number_of(len(measurements), 'run')} failed and named it"
        concern_if(True, f"{failed}: {named[-1].reading.problem}; expected each run to exchange bytes")


def say_unmet(node: str, measurements: Sequence[Measurement]) -> None:
    """Say with which partners nothing was exchanged, unless the partner was at fault, or busy."""
    exchanged = {measurement.pair for measurement in measurements if measurement.reading.exchanges}
    unmet = [
        measurement
        for measurement in measurements
        if measurement.pair not in exchanged
        and (is_named(node, measurement) or not (measurement.reading.culprit or measurement.reading.failure))
    ]
    if unmet:
        partners = fold({measurement.pair.other(node) for measurement in unmet})
        incomplete(f"nothing was exchanged with {partners}: {unmet[-1].reading.problem}; expected an exchange")


def is_named(node: str, measurement: Measurement) -> bool:
    """Whether a run that exchanged nothing names the node, which lacks no program."""
    reading = measurement.reading
    return not reading.exchanges and reading.failure is None and reading.culprit == node


def say_finding(finding: MeshFinding) -> None:
    """Report a finding that names the node, or something it shares with others."""
    kind, message = finding.kind, finding.words
    concern_if(kind is MeshKind.NODE, f"{message}; expected bytes to come back to each")
    concern_if(kind is MeshKind.DEVICE, f"{message}; expected bytes to come back, as to its other devices")
    is_cut = kind in (MeshKind.CUT, MeshKind.PATH)
    concern_if(is_cut, f"{message}; expected what lies between them to carry both ways")
    concern_if(kind is MeshKind.PARTLY, f"{message}; expected it to reach each")
    concern_if(kind is MeshKind.ONCE, f"{message}; expected it each time")
    is_shared = kind in (MeshKind.RAIL, MeshKind.SWITCH)
    concern_if(is_shared, f"{message}; expected what they share (switch, VLAN, subnet manager) to carry them")
    is_of_all = kind is MeshKind.ALL
    concern_if(
        is_of_all, f"{message}; expected that what all share (security group, VLAN, subnet manager) lets them pass"
    )
    if kind in SHARED:
        own = f"its device{'' if len(finding.rails) == 1 else 's'} on {describe_rails(finding.rails)}"
        incomplete(f"whether {own} can reach anybody cannot be told; expected partners that reach others there")
    if kind is MeshKind.GAP:
        incomplete(f"{message}; expected the same devices on each node")
    if kind is MeshKind.APART:
        incomplete(f"{message}; expected them to reach each other by TCP, and nobody else to come first")
    if kind is MeshKind.OPEN:
        incomplete(f"{message}; expected more partners that reach others")
