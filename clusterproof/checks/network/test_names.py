"""Host names and addresses: name resolution, and addresses that another host has too."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, readings, require
from clusterproof.plugins.evidence.kernel_log.wording import joined
from clusterproof.plugins.evidence.network.facts import Nameserver
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight]


@mark.hyperpod_node_debugger("B")
@evidence("cat /etc/resolv.conf; resolvectl status; getent hosts $(hostname)")
def test_nameservers(node: Node) -> None:
    """Name servers.

    Queries each server in /etc/resolv.conf, and each one behind systemd-resolved, twice over UDP. A lookup waits five
    seconds for each silent server before it tries the next. If none answers, file systems are not mounted and ranks do
    not find each other.

    Remedy (restore service): Check that the server runs (dig @SERVER NAME) and that security groups and firewalls allow
    UDP port 53. Remove a server that no longer exists from the DHCP options or /etc/resolv.conf.
    """
    servers = node.naming.nameservers
    if not servers:
        not_applicable("/etc/resolv.conf names no nameserver")
    silent = [server.address for server in servers if not _answers(server)]
    seen = f"no answer from {', '.join(silent)}"
    assert len(silent) < len(servers), f"{seen}; expected at least one from a nameserver"
    concern_if(silent, f"{seen}; expected one from each nameserver")


def _answers(server: Nameserver) -> bool:
    """Whether the server answers, or may; an unknown answer is reported separately."""
    return known(lambda: server.answers, True)


@mark.hyperpod_node_debugger("J")
@evidence("grep -w $(hostname) /etc/hosts; ip -br addr")
def test_own_name(node: Node) -> None:
    """The node's own name.

    /etc/hosts is consulted before DNS. If it maps the node's name to another node's address, left over from an image or
    a restored disk, the node gives others the wrong address, and the rendezvous of jobs hangs.

    Remedy (fix configuration): Correct the line in /etc/hosts, and whatever writes it (cloud-init's manage_etc_hosts, a
    lifecycle script).
    """
    entries, wrong = node.naming.hosts, node.naming.not_own
    name = known(lambda: node.naming.hostname, "this node's name")
    seen = f"/etc/hosts gives {name} the address {', '.join(wrong)}"
    assert not wrong or len(wrong) < len(entries), f"{seen}; expected an address of this node"
    concern_if(wrong, f"{seen} in addition to its own; expected only its own")


@mark.hyperpod_node_debugger("B")
@evidence("ip -br addr; ip -br link; ip -6 addr show dadfailed")
def test_address_unique(node: Node) -> None:
    """Node address.

    Compares MAC and IPv4 addresses of physical interfaces and bonds with the group's other nodes; the kernel itself
    reports a duplicate IPv6 address. With a duplicate, connections reach sometimes one node, sometimes the other.
    Addresses that most nodes of the group share are ignored: they belong to a network inside each machine, such as the
    link to its BMC. Nodes that share all addresses and the boot ID are one machine.

    Remedy (fix configuration): Give each node its own address; look for a cloned disk with a static address, or a
    virtual machine that was started twice. If one machine is listed under two names, correct the inventory.
    """
    naming = node.naming
    with part:
        concern_if(
            naming.duplicates,
            f"another host also has {joined(naming.duplicates)}; expected this node alone to have it",
        )
    with part:
        require(why for address in naming.addresses for why in readings(address, "driver", "mac", "ipv4")[1])
    if not naming.unique:
        not_applicable("no interface of this node has an address of its own")
    shared = node.group.shared("addresses", _unique)
    most = max(2, len(node.group.nodes) * node.threshold("group.majority"))
    one_machine = {node.name, *node.same_machine}
    sharing = {address: shared.get(address, ()) for address in sorted(naming.unique)}
    of_one = {address: [name for name in names if name in one_machine] for address, names in sharing.items()}
    is_one_for_all = all(len(names) > 1 for names in of_one.values())
    ours = {
        address: names if len(names) <= most else of_one[address]
        for address, names in sharing.items()
        if len(names) > 1 and (is_one_for_all or len(names) <= most)
    }
    seen = joined(f"{address} is also that of {_others(names, node)}" for address, names in ours.items())
    is_one = all({*names} <= one_machine for names in ours.values())
    why = ", with the same boot ID, so the same machine" if is_one else ""
    concern_if(ours, f"{seen}{why}; expected {'two different machines' if is_one else 'each address on one node only'}")


def _unique(node: Node) -> Iterable[str]:
    return node.naming.unique


def _others(names: Iterable[str], node: Node) -> str:
    others = [name for name in names if name != node.name]
    return others[0] if len(others) == 1 else f"{others[0]} and {len(others) - 1} other nodes"
