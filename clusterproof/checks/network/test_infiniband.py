"""InfiniBand and RoCE: devices and the state of their ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import NotApplicable, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.group import Difference, Values, describe, differences, majority_of
from clusterproof.plugins.evidence.network.facts import ETHERNET, INFINIBAND, Port, RdmaDevice
from clusterproof.plugins.evidence.network.facts_fabric import is_without_use, kind
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]

ONE_LANE = "(1X "  # in a rate; HDR100 and NDR200 have two of four lanes by design


@mark.prolog
@evidence("ls /sys/class/infiniband")
def test_ib_count(node: Node) -> None:
    """InfiniBand or RoCE device count.

    Counts RDMA devices other than EFA and compares them with --expect ib=N, otherwise with most nodes of the group. If
    the group has no majority, fewer devices than on another node are a concern.

    Remedy (investigate): Look for the missing device with lspci and in the kernel log (journalctl -k). Reseat it, or
    replace the node.
    """
    count, due = int(_count(node)[NUMBER]), node.target.expect.get("ib")
    if due is not None:
        assert count >= due, f"{count} InfiniBand or RoCE devices; expected {due}"
    if due == 0 or node.efa_devices:
        not_applicable("this node's fabric is EFA" if node.efa_devices else "none is expected here")
    if due is None:
        deviations = differences(node, "InfiniBand devices", _count)
        fail_if(fewer := [other for other in deviations if int(other.majority or 0) > count], describe(fewer))
        most = max((int(value) for value in _counted_in_group(node)), default=0)
        undecided = [other for other in deviations if not other.majority and count < most]
        concern_if(undecided, describe(undecided))
        if not count:
            not_applicable("no InfiniBand or RoCE device on this node, nor on most nodes of its group")


NUMBER = "number of InfiniBand or RoCE devices"


def _count(node: Node) -> Mapping[str, str]:
    devices = node.ib_devices
    if devices and all(device.is_alone for device in devices):
        incomplete("the capture has only single devices, queried by name; expected a list of all devices")
    return {NUMBER: str(len(devices))}


def _counted_in_group(node: Node) -> Iterable[str]:
    return node.group.counts("InfiniBand devices", _count).get(NUMBER, ())


@mark.prolog
@evidence("ibstat; grep . /sys/class/infiniband/*/ports/*/state /sys/class/infiniband/*/ports/*/rate")
def test_ib_ports(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand or RoCE port state and speed.

    Every port with a cable must be active, at the rate of the same port on most nodes of the group: one slow rail slows
    every collective. Without a majority, or where this node only numbers its ports otherwise, a port slower than
    another of its model, or than the same port elsewhere, is a concern, since it may be another network's, unless
    InfiniBand came up on a single lane. A port in physical state Disabled was switched off by somebody, or is one of
    Ethernet without a link: a concern if the same port is active on most nodes of the group, or, where no other node
    reports it, if an Ethernet port lost a link that ports of its model here have. So is an iWARP port that has no IPv4
    address (INIT). A driver may report no state (NOP), as Azure's did for MANA. A port that is Polling on all nodes
    of the group, two or more, and has never lost a link has no cable or no network plane: a single concern until it is
    switched off, unless no port here is active. The same holds where no other node reports the port, as in a prolog.
    A virtual function is spare while it is DOWN beside an active port of a physical device.
    The planes of a port (devices such as smi1) are compared with planes.

    Remedy (investigate): Reseat or replace the cable and check the switch port. ibdiagnet shows more.
    """
    if node.efa_devices:
        not_applicable("this node's fabric is EFA")
    assert ib_device.ports, "no port; expected at least one"
    used = [port for port in ib_device.ports if not is_without_use(node, ib_device, port)]
    for port in ib_device.ports:
        with part:
            if port not in used:
                evaluate_disabled(node, ib_device, port)
    if not used:
        not_applicable(
            "every port is disabled, of Ethernet without a link or address, or reports no state, "
            "or is a spare virtual function's"
        )
    uses = [*each(used, lambda port: (port, is_unused_everywhere(node, ib_device, port)))]
    unused = [port for port, is_unused in uses if is_unused]
    is_shared = all(_has_peers(node, ib_device, port, USES, _uses) for port in unused)
    where = ", here and on all nodes that report it" if is_shared else " beside active ports"
    seen = f"no link of {', '.join(port.label for port in unused)} (Polling){where}, and it never lost one"
    concern_if(unused, f"{seen}; expected 4: ACTIVE, or 3: Disabled for ports without a cable")
    for port, is_unused in uses:
        if is_unused:
            continue
        with part:
            assert port.is_active, f"{port.label} is {port.state}; expected 4: ACTIVE"
        with part:
            assert port.is_linked, f"{port.label} is {port.physical_state}; expected 5: LinkUp"
        with part:
            evaluate_rate(node, ib_device, port)


def evaluate_disabled(node: Node, device: RdmaDevice, port: Port) -> None:
    """A concern for a port that most nodes use, or an Ethernet one that lost its link, unlike others of its model."""
    off, name = _deviations(node, device, port, STATES, _states), _name(device, port)
    concern_if(off, describe(off))
    with part:
        used = _rates_on(node, device, port).total()
        if used and not off and majority_of(node, STATES, _states, name, None) is None and port.link_layer == ETHERNET:
            seen = f"{port.label} is {port.physical_state} and lost its link {port.link_downed} times"
            concern_if(port.link_downed, f"{seen}; expected 4: ACTIVE, like {used} ports of its model here")


def evaluate_rate(node: Node, device: RdmaDevice, port: Port) -> None:
    """Fail if an active port is slower than most ports like it; a concern if it is slower than some."""
    gbps, like = port.gbps, known(lambda: _rates_on(node, device, port), Counter[float]())
    deviations = _deviations(node, device, port, RATES, _rates)
    if not port.is_active or _has_majority_rate(node, device, port):
        return
    is_degraded = readings(port, "link_layer")[0].get("link_layer") == INFINIBAND and ONE_LANE in port.rate
    elsewhere = max((_gbps(deviation.majority) for deviation in deviations), default=0.0)
    here = _majority_rate(like, node) if is_degraded else 0.0
    like_most = "as on most nodes" if elsewhere >= here else "like most ports of its model here"
    assert gbps >= max(elsewhere, here) or (not is_degraded and _is_renumbered(node, device, port)), (
        f"{port.label} at {port.rate}; expected {max(elsewhere, here):g} Gb/s, {like_most}"
    )
    most = max(like, default=0.0)
    seen = f"{port.label} at {port.rate}; expected {most:g} Gb/s, like {like[most]} ports of its model here"
    concern_if(gbps < most, seen)
    rates = node.group.counts(RATES, _rates).get(_name(device, port), ())
    undecided = [deviation for deviation in deviations if not deviation.majority]
    concern_if(undecided and gbps < max(map(_gbps, rates), default=0.0), describe(undecided))


def is_unused_everywhere(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether a port has no link on any node of the group, while other ports here have one."""
    if _use(port) != UNUSED or not any(_use(other) == USED for _, other in _ports(node)):
        return False
    is_alike = len(node.group.counts(USES, _uses).get(_name(device, port), ())) == 1
    counts_none = readings(port, "link_downed")[0].get("link_downed") == 0  # ibstatus shows no counters
    return is_alike if _has_peers(node, device, port, USES, _uses) else counts_none


def _has_peers(node: Node, device: RdmaDevice, port: Port, what: str, read: Callable[[Node], Values]) -> bool:
    """Whether other nodes of the group report this for the same port."""
    reporting = node.group.counts(what, read).get(_name(device, port), Counter()).total()
    return reporting >= int(node.threshold("group.compared_nodes"))


def _use(port: Port) -> str | None:
    """Whether a port has a link, or waits for one and has never lost any."""
    reading, unread = readings(port, "is_active", "physical_state", "link_downed")
    if unread:
        return None
    is_polling = reading["physical_state"].endswith("Polling") and not reading["link_downed"]
    return USED if reading["is_active"] else UNUSED if is_polling else OTHER


def _rates_on(node: Node, device: RdmaDevice, port: Port) -> Counter[float]:
    """How many active ports of this model and link layer on the node have each rate."""
    own = kind(device, port)
    return Counter(_gbps(rate) for like, other in _ports(node) if _kind(like, other) == own and (rate := _rate(other)))


def _majority_rate(rates: Counter[float], node: Node) -> float:
    """The rate of most ports; 0 if no rate has a majority."""
    rate, alike = rates.most_common(1)[0] if rates else (0.0, 0)
    return rate if alike > rates.total() * node.threshold("group.majority") else 0.0


USES, USED, UNUSED, OTHER = "links of InfiniBand ports", "active", "never up", "down"
EVERY_RATE, RATES, STATES = "all rates of InfiniBand ports", "rates of InfiniBand ports", "states of InfiniBand ports"
ALL = "all"  # ports of a node


def _deviations(
    node: Node, device: RdmaDevice, port: Port, what: str, read: Callable[[Node], Values]
) -> list[Difference]:
    """How a port differs from the same port in its group; empty in a group too small to compare."""
    try:
        deviations = differences(node, what, read, absent=None)
    except NotApplicable:
        return []
    return [deviation for deviation in deviations if deviation.name == _name(device, port)]


def _has_majority_rate(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether most nodes of the group, including others than this, have this port at this rate."""
    majority = majority_of(node, RATES, _rates, _name(device, port), None)
    return majority is not None and majority.value == _rate(port)


def _is_renumbered(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether most nodes have as many ports like this one at each rate: it may have another number there.

    All ports here are compared if the model or link layer of one is unread.
    """
    own = node.group.values(EVERY_RATE, _every_rate)[node.name]
    like = _kind(device, port)
    like = like if like in own else ALL
    majority = majority_of(node, EVERY_RATE, _every_rate, like, None)
    return majority is not None and majority.value == own.get(like)


def _every_rate(node: Node) -> Values:
    """The rates of all ports, and of those of a model and link layer if these are read of every port.

    Empty for a port that is not active.
    """
    by_kind: dict[str, list[str]] = {}
    for device, port in _ports(node):
        for like in (ALL, _kind(device, port)):
            by_kind.setdefault(like, []).append(_rate(port) or "")
    kinds = [ALL] if "" in by_kind else [*by_kind]
    return {like: ", ".join(sorted(by_kind[like])) for like in kinds if by_kind}


def _kind(device: RdmaDevice, port: Port) -> str:
    """What ports are alike in; empty if that is unread."""
    return known(lambda: kind(device, port), "")


def _state(port: Port) -> str | None:
    """Whether a port is active, disabled or without an address; None if it is none of these, or that is unknown."""
    states = {"is_active": "ACTIVE", "is_disabled": "Disabled", "is_unaddressed": "INIT"}
    reading, _ = readings(port, *states)
    return next((word for name, word in states.items() if reading.get(name)), None)


def _name(device: RdmaDevice, port: Port) -> str:
    """`mlx5_0 port 1`. Raises Incomplete."""
    return f"{device.name} port {port.number}"


def _gbps(rate: str) -> float:
    """The number in a rate; 0 if there is none."""
    return float(rate.partition(" ")[0] or 0)


def _ports(node: Node) -> Iterator[tuple[RdmaDevice, Port]]:
    """The ports of the devices that report theirs."""
    for device in node.ib_devices:
        reading, _ = readings(device, "ports")
        yield from ((device, port) for port in reading.get("ports", ()))


def _rate(port: Port) -> str | None:
    """The rate of an active port; None if the state or the rate is unknown."""
    reading, _ = readings(port, "gbps", "is_active")
    return f"{reading['gbps']:g} Gb/s" if reading.get("is_active") and "gbps" in reading else None


def _by_name(node: Node, read: Callable[[Port], str | None]) -> Values:
    """A value of each port, by its name; ports without one are findings of their own node."""
    every = ((readings(device, "name")[0], readings(port, "number")[0], port) for device, port in _ports(node))
    return {f"{of['name']} port {own['number']}": read(port) for of, own, port in every if of and own}


_uses, _rates, _states = (partial(_by_name, read=read) for read in (_use, _rate, _state))


@evidence("grep . /sys/class/infiniband/*/ports/*/link_layer; mlxconfig -d DEVICE query LINK_TYPE_P1")
def test_ib_link_layer(node: Node) -> None:
    """InfiniBand port link layer.

    The firmware setting LINK_TYPE makes a port InfiniBand or Ethernet; with the wrong setting it is up but carries no
    fabric traffic. Each port is compared with the same port on most nodes of the group: a port that is Ethernet
    everywhere is meant to be, usually for storage. Without a majority, a difference is a concern.

    Remedy (fix configuration): Set LINK_TYPE_P1 (or P2) to IB with mlxconfig, and reset the device or reboot the node.
    """
    if node.efa_devices or not node.ib_devices:
        not_applicable("this node's fabric is EFA" if node.efa_devices else "no InfiniBand or RoCE device on this node")
    deviations = differences(node, "link layers", _link_layers)
    turned = [deviation for deviation in deviations if deviation.own == ETHERNET and deviation.majority == INFINIBAND]
    fail_if(turned, describe(turned))
    undecided = [deviation for deviation in deviations if deviation.own == ETHERNET and not deviation.majority]
    concern_if(undecided, describe(undecided))
    require(why for device in node.ib_devices for why in readings(device, "name", "ports")[1])
    require(why for _, port in _ports(node) for why in readings(port, "number", "link_layer")[1])


def _link_layers(node: Node) -> Mapping[str, str | None]:
    """The link layer of each port; None if unknown."""
    layers = _by_name(node, lambda port: readings(port, "link_layer")[0].get("link_layer"))
    return {f"{name} is": layer for name, layer in layers.items()}
