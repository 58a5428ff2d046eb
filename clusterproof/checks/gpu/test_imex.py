"""IMEX, the service through which the trays of an NVLink rack share GPU memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import known, reading_of, readings, require
from clusterproof.plugins.evidence.gpu.facts_rack import (
    FABRIC,
    NO_CLUSTER,
    clique_of,
    imex_daemon,
    is_address,
    require_rack,
    runs_imex,
    starts_imex,
)
from clusterproof.plugins.evidence.gpu.facts_racks import (
    at_fault_of,
    called,
    compared_lists,
    has_another_list,
    imex_list,
    is_most,
    listed_with,
    listing,
)
from clusterproof.plugins.evidence.group import Values
from clusterproof.plugins.evidence.host.facts_node import service_state
from clusterproof.plugins.evidence.node import Node

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.gpu.parse_imex import ImexNode

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]

STOPPED, MISSING = "inactive", "not installed"
NAMED = 4  # trays in a message; the others are only counted
CONNECTED, READY, NO_GPU, MISMATCH = "CONNECTED", "READY", "NO_GPU", "NODE_MAP_MISMATCH"


@mark.ami
@evidence("systemctl status nvidia-imex; cat /etc/nvidia-imex/nodes_config.cfg; ls /dev/nvidia-caps-imex-channels")
def test_imex(node: Node) -> None:
    """IMEX service.

    The GPUs of a rack share memory over NVLink through nvidia-imex on every tray. Without it, jobs across trays fall
    back to the network or do not start. Kubernetes pods and Slurm prologs may start their own, so a stopped service is
    reported only if it is enabled at boot, this tray lists others or is listed by them, or IMEX channels exist for
    jobs.

    Remedy (restore service): Configure the trays of the domain (/etc/nvidia-imex/nodes_config.cfg), enable nvidia-imex
    and start it.
    """
    require_rack(node, is_known=True)
    state = service_state(node, "nvidia-imex")
    if state == "active":
        return
    asks: list[Callable[[Node], bool]] = [listed_elsewhere, *([starts_imex] if state != MISSING else []), is_configured]
    if state in (STOPPED, MISSING) and not any(known(lambda: ask(node), False) for ask in asks):  # noqa: B023 - at once
        not_applicable(f"nvidia-imex is {state} and not needed here: no list of trays, no IMEX channel")
    concern(f"nvidia-imex is {state}; expected active, unless pods or a prolog start their own")


def listed_elsewhere(node: Node) -> bool:
    """Whether another tray's nodes_config.cfg names this one."""
    return bool(listing(node))


def is_configured(node: Node) -> bool:
    """Whether this tray has a list of trays, a channel for jobs, or a daemon with a list. Raises Incomplete."""
    try:
        reading, unread = readings(node.imex, "nodes", "channels", "daemon")
    except Absent:
        return False
    if not any(reading.values()):
        require(unread)
    return any(reading.values())


@evidence("nvidia-imex-ctl -N")
def test_imex_domain(node: Node) -> None:
    """IMEX domain.

    A tray without an IMEX connection to another cannot map the memory of its GPUs. Each tray is evaluated only by its
    own connections, because what it reports about other trays may just repeat its configuration. A tray is at fault if
    it lacks most of its connections to trays that are READY and have the same list; otherwise it names the trays it
    cannot reach. A Kubernetes ComputeDomain may reserve places for nodes that have not joined: these are not reported,
    nor is a domain that is not UP because of them.

    Remedy (restore service): Compare nodes_config.cfg and the versions of the driver and nvidia-imex on the trays. Read
    journalctl -u nvidia-imex, and check that TCP ports 50000 and 50005 are open between the trays. Restart nvidia-imex
    on all of them when no job is running.
    """
    require_rack(node)
    require_running(node)
    if "imex_self" not in readings(node, "imex_self")[0]:
        evaluate_all(node.imex_domain.nodes, node)
    own = node.imex_self
    with part:
        if not own.status:
            incomplete(f"no state is shown for nvidia-imex of this tray; expected {READY}")
        fail_if(own.status != READY, f"nvidia-imex is {own.status}; expected {READY}")
    with part:
        evaluate_connections(node, own)
    with part:
        listed, running = node.imex.nodes, len(node.imex_domain.nodes)
        seen = f"{running} trays in the running domain, {len(listed)} in nodes_config.cfg"
        is_stale = listed and running not in (len(listed), len(set(listed)))
        concern_if(is_stale, f"{seen}; expected as many, since nvidia-imex reads it once")
    with part:
        is_other = own.version and own.version != NO_GPU and not node.nvml.driver.startswith(own.version)
        concern_if(own.version == NO_GPU, "nvidia-imex runs without GPUs; expected it to see this tray's GPUs")
        concern_if(
            is_other, f"nvidia-imex uses driver version {own.version}; expected {node.nvml.driver}, the loaded driver"
        )


def evaluate_connections(node: Node, own: ImexNode) -> None:
    """The verdict from a tray's own connections: on itself, if most of those due are missing; else on the others."""
    is_alone = node.name in node.run.once("trays with another list", at_fault_of) and not listed_with(node)
    due = {peer.number: peer for peer in node.imex_domain.nodes if is_due(node, peer, own)}
    states = {number: word for number in due if (word := own.links.get(number))}
    missing = {number: word for number, word in states.items() if word != CONNECTED}
    named = ", ".join(
        f"{word} with {some(name_of(node, due[number]) for number in missing if missing[number] == word)}"
        for word in dict.fromkeys(missing.values())
    )
    away = {number for number, word in missing.items() if not is_of_one_domain(node, due[number], word)}
    is_cut_off = is_most(node, len(missing) - len(away), len(due) - len(away))
    seen = f"{len(missing)} of {len(due)} IMEX connections to other trays are not up: {named}"
    fail_if(missing and is_cut_off, f"{seen}; expected {CONNECTED}")
    concern_if(missing and not is_cut_off, f"{seen}; expected {CONNECTED}")
    unshown = some(name_of(node, due[number]) for number in due if number not in states)
    if unshown:
        seen = f"no state is shown for {len(due) - len(states)} of {len(due)} IMEX connections to other trays"
        incomplete(f"{seen}: {unshown}; expected {CONNECTED}")
    if is_alone and not due:
        incomplete(
            "nodes_config.cfg lists no other tray, but other trays list this one; expected the same list on all of them"
        )


def evaluate_all(trays: Iterable[ImexNode], node: Node) -> None:
    """The verdict on what all trays of a domain have in common, for which none of them is known to be responsible."""
    states, versions = {tray.status for tray in trays}, {tray.version for tray in trays}
    status = ", ".join(sorted(states))
    fail_if(
        "" not in states and READY not in states,
        f"nvidia-imex is {status} on all trays of the domain; expected {READY}",
    )
    with part:
        version = next(iter(versions), "") if len(versions) == 1 else ""
        is_other = version and version != NO_GPU and not node.nvml.driver.startswith(version)
        seen = f"nvidia-imex uses driver version {version} on all trays of the domain"
        concern_if(is_other, f"{seen}; expected {node.nvml.driver}, the driver loaded here")


def require_running(node: Node) -> None:
    """Raise if IMEX's answers are not its own, or not available yet: it does not run, or has just started."""
    daemon = imex_daemon(node)
    state = known(lambda: service_state(node, "nvidia-imex"), "") if daemon else service_state(node, "nvidia-imex")
    if state != "active" and daemon is None:
        not_applicable(f"nvidia-imex is {state}")
    settle_s = node.threshold("imex.settle_s")
    started = node.services["nvidia-imex"] if state == "active" else daemon
    active_s = reading_of(started, "active_s") if started else None
    if active_s is not None and active_s < settle_s:
        incomplete(f"nvidia-imex started {active_s:.0f} s ago and may take {settle_s:.0f} s to connect")


def is_due(node: Node, other: ImexNode, own: ImexNode) -> bool:
    """Whether a tray should be connected to that one: not to a reserved place, which has only a name."""
    is_kept = other.status != READY and not is_address(other.host) and called(node, other.host) is None
    return other.number != own.number and not is_kept


def is_of_one_domain(node: Node, other: ImexNode, word: str) -> bool:
    """Whether another tray is READY and has this tray's list: by its own answer, otherwise by this one's."""
    there = called(node, other.host)
    status = node.run.values("status of nvidia-imex", status_of).get(there.name, {}).get(READY) if there else None
    own, its = imex_list(node), imex_list(there) if there else ()
    has_list = own == its if own and its else word != MISMATCH
    return has_list and (status or other.status) == READY


def status_of(node: Node) -> Values:
    """The status that a tray's own nvidia-imex reports for itself. Raises Incomplete if that is unknown."""
    return {READY: node.imex_self.status if runs_imex(node) else "not running"}


def name_of(node: Node, other: ImexNode) -> str:
    """The inventory's name of a node of the domain, otherwise IMEX's, with its address: `gpu007 (10.1.2.7)`."""
    tray = called(node, other.host)
    name = tray.name if tray else other.host_name
    return f"{name} ({other.host})" if name else other.host


def some(names: Iterable[str]) -> str:
    """The first of these names: `gpu007, gpu008 and 12 more`."""
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


@evidence("cat /etc/nvidia-imex/nodes_config.cfg")
def test_imex_nodes(node: Node) -> None:
    """IMEX nodes_config.

    All trays of an IMEX domain must list the same addresses in the same order, and must be in one clique of one NVLink
    cluster. A tray with a different list is refused (node map mismatch), and one in another rack cannot be reached over
    NVLink. A tray is at fault if most trays it lists, or that list it, agree on a different list that includes it. If a
    prolog writes a list for each job, an idle tray keeps its last job's.

    Remedy (fix configuration): Write the same nodes_config.cfg, with each tray of the rack once, to all trays, and
    restart nvidia-imex on them when no job is running.
    """
    require_rack(node)
    try:
        nodes = node.imex.nodes
    except Absent:  # pods may bring their own
        nodes = ()
    if not nodes:
        if runs_imex(node):
            incomplete("nvidia-imex runs, but no list of trays was found; expected one in nodes_config.cfg")
        not_applicable("nodes_config.cfg lists no tray: nvidia-imex is not configured on the node itself")
    twice = [address for address, count in Counter(nodes).items() if count > 1]
    concern_if(twice, f"nodes_config.cfg lists {some(twice)} more than once; expected each tray once")
    others = listed_with(node)
    with part:
        evaluate_cliques(node, others)
    lists = compared_lists(node)
    is_own = known(lambda: has_another_list(node), False)
    compared = lists if is_own else {name: trays for name, trays in lists.items() if name in others}
    require_compared(node, nodes, bool(compared))
    at_fault = () if is_own else node.run.once("trays with another list", at_fault_of)
    unlike = [name for name, trays in compared.items() if trays != imex_list(node) and name not in at_fault]
    expected = f"expected the same list on all {len(compared) + 1} trays in it"
    seen = f"nodes_config.cfg differs from that of {some(unlike)}; {expected}"
    is_fault = is_own and not known(lambda: may_be_of_a_job(node), False)
    fail_if(unlike and is_fault, seen)
    concern_if(unlike and not is_fault, seen)


def evaluate_cliques(node: Node, others: Mapping[str, Node]) -> None:
    """The verdict on a list of trays that are not all in one clique of one NVLink cluster."""
    own = clique_of(node)[FABRIC]
    cliques = {name: clique for name, other in others.items() if (clique := known_clique(other))}
    unlike = [name for name, clique in cliques.items() if own and clique != own and not own.endswith(NO_CLUSTER)]
    verb = "is" if len(unlike) == 1 else "are"
    expected = "expected all trays of the list in one clique of one cluster"
    message = f"{some(unlike)} in nodes_config.cfg {verb} not in {own}, which this tray is in; {expected}"
    is_own = is_most(node, len(unlike), len(cliques))
    fail_if(unlike and is_own, message)
    concern_if(unlike and not is_own, message)


def may_be_of_a_job(node: Node) -> bool:
    """Whether a tray's list, which names no other tray, may be for a job on it alone. Raises Incomplete."""
    return not listed_with(node) and not starts_imex(node)


def require_compared(node: Node, nodes: tuple[str, ...], are_others_known: bool) -> None:
    """Raise if there is no list to compare a tray's with: NotApplicable without another tray, or Incomplete."""
    if are_others_known:
        return
    if len(node.run.nodes) == 1:
        not_applicable("this run has no other tray to compare nodes_config.cfg with")
    if all((there := called(node, address)) and there.name == node.name for address in nodes):
        not_applicable("nodes_config.cfg lists no other tray")
    incomplete("nodes_config.cfg was not read on any other tray of the list; expected it from all of them")


def known_clique(other: Node) -> str | None:
    """The clique of another tray; None if it is unknown."""
    return other.run.values(FABRIC, clique_of).get(other.name, {}).get(FABRIC)
