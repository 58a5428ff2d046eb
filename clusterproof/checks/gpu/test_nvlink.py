"""NVLink: whether all links of a GPU are up, and what errors they have counted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    NotApplicable,
    concern_if,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import reading_of, readings
from clusterproof.plugins.evidence.gpu.facts import BASEBOARD, Gpu
from clusterproof.plugins.evidence.gpu.facts_node import has_majority_model, nvlinks_between, same_model_values
from clusterproof.plugins.evidence.gpu.facts_parts import BIT_ERROR_RATES, NvlinkErrors
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address
from clusterproof.plugins.evidence.kernel_log.xid_findings import evaluate
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]


@mark.prolog
@mark.ami
@evidence("nvidia-smi nvlink -s; nvidia-smi topo -m")
def test_nvlink_active(gpu: Gpu, node: Node) -> None:
    """Active NVLinks.

    All NVLinks that the instance type provides must be up on every GPU: with one down, collectives inside the node are
    slow or fail. If the driver reports NVLink as unsupported, none counts as up. If the expected number is unknown, a
    GPU still fails when only some of its links are down, or when it has fewer links than the node's other GPUs,
    including in the nvidia-smi topo matrix.

    Remedy (reset or reboot): Reset the GPU or reboot the node. If a link stays down, replace the node.
    """
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink")
    if gpu.is_partitioned:
        not_applicable("the driver does not report NVLink states while MIG is on")
    with part:
        evaluate_ways(gpu, node)
    states = links_of(gpu, node)
    if node.nvlinks_due is None:
        evaluate_links_by_peers(gpu, node)
    due = node.expected("nvlinks")
    active = states.count(True)
    if active >= due:
        return
    if active + states.count(None) >= due:
        incomplete(f"NVLink {states.index(None)} could not be read; expected {due} active links")
    assert False not in states, f"NVLink {inactive(states, gpu)} inactive; expected {due} active links"
    raise AssertionError(f"{len(states)} NVLinks; expected {due} active links")


def links_of(gpu: Gpu, node: Node) -> tuple[bool | None, ...]:
    """Its links; empty if the driver supports none although its type or another GPU of its model has some.

    Raises Incomplete, NotApplicable.
    """
    try:
        return gpu.nvlink_states
    except NotApplicable:
        is_wired = bool(BASEBOARD.search(reading_of(gpu, "name", "")))
        if not (node.nvlinks_due or (is_wired and any(links_of_peers(gpu, node)))):
            raise
    return ()


MIN_JOINED = 4  # GPUs that may be joined all with all; of three a bridge joins two


def evaluate_links_by_peers(gpu: Gpu, node: Node) -> None:
    """The verdict on a GPU's links if the expected number is unknown; none if they show no fault."""
    states, of_peers = links_of(gpu, node), links_of_peers(gpu, node)
    model = reading_of(gpu, "name", "")
    are_dead = set(states).union(*of_peers) == {False}
    is_board = bool(BASEBOARD.search(model))
    is_wired = not of_peers or is_board
    has_none = is_board and not any((states, *of_peers))  # of which nvidia-smi only says that all are inactive
    seen = f"all {len(states)} NVLinks inactive" if states else "no active NVLink"
    concern_if(
        has_none or (are_dead and model and is_wired),
        f"{seen}; expected active ones, unless this machine does not wire any",
    )
    if are_dead and not model:  # as a card without a bridge shows them too
        incomplete(f"all {len(states)} NVLinks inactive; whether this model wires them is unknown")
    active, most = states.count(True), max((peer.count(True) for peer in of_peers), default=0)
    assert active + states.count(None) >= most, f"{active} active NVLinks; expected {most}, as on another GPU"
    last = max((link for link, is_active in enumerate(states) if is_active), default=0)
    down = inactive(states[:last], gpu)
    is_wired_so = bool(of_peers) and all(peer == states for peer in of_peers)
    fail_if(down and not is_wired_so, f"NVLink {down} inactive, {active} others active; expected all of them active")
    unless = "unless this machine wires no more"
    concern_if(down and is_wired_so, f"NVLink {down} inactive on every GPU; expected active, {unless}")


def evaluate_ways(gpu: Gpu, node: Node) -> None:
    """Fail if nvidia-smi topo shows fewer NVLinks from this GPU to others than between most GPUs of the node."""
    nvlinks = nvlinks_between.of(node)
    others = [(label, other) for label, to in nvlinks.items() for other in to if gpu.label not in (label, other)]
    counts = Counter(nvlinks[label][other] for label, other in others if len(nvlinks) >= MIN_JOINED)
    most_common, count = counts.most_common(1)[0] if counts else (0, 0)
    fewer = {label: [other for other, links in to.items() if links < most_common] for label, to in nvlinks.items()}
    own = fewer.get(gpu.label, [])
    most = max(map(len, fewer.values()), default=0)
    with_as_few = sum(len(others) == most for others in fewer.values())  # of a mesh or a ring all GPUs have fewer
    is_the_one = bool(own) and len(own) == most and 2 * with_as_few < len(nvlinks)
    if not is_the_one or count <= counts.total() * node.threshold("group.majority"):
        return
    to = nvlinks[gpu.label]
    may_have_none = not (any(to.values()) or node.nvlinks_due or has_majority_model(gpu, node))  # as one for a display
    fewest = min(to[other] for other in own)
    seen = f"{fewest} NVLinks to {', '.join(own)}; expected {most_common}, as between most GPUs here"
    fail_if(not may_have_none, seen)
    concern_if(may_have_none and not readings(gpu, "name")[0], f"{seen}, unless it is of another model")


def links_of_peers(gpu: Gpu, node: Node) -> list[tuple[bool | None, ...]]:
    """The links of the node's other GPUs of the same model, as far as they report them."""
    return [states for index, states in same_model_values(gpu, node, "nvlink_states") if index != gpu.index]


def inactive(states: Iterable[bool | None], gpu: Gpu) -> str:
    """The links that are down: `5, 7`."""
    shown = reading_of(gpu, "nvlink_numbers") or ()
    numbers = shown if len(shown) == len(gpu.nvlinks) else itertools.count()
    return ", ".join(str(link) for link, is_active in zip(numbers, states, strict=False) if is_active is False)


RECOVERIES = ("recovery", "recovery_failed")
MAX_NAMED = 8  # links with errors, at most, that a message names


@evidence("nvidia-smi nvlink -e")
def test_nvlink_errors(gpu: Gpu, node: Node) -> None:
    """NVLink error counters.

    A replay resends a packet and a recovery retrains the link. Neither loses data, but both cost time, and a link with
    rising counts is deteriorating. If the GPU also had a fatal Xid in this boot, recoveries count as a fault. Since
    Blackwell, links also report the bit error rates that error correction leaves; what it corrects is normal.

    Remedy (reset or reboot): With a fatal Xid: reset the GPU, and replace the node if it returns. Otherwise watch the
    counters under load.
    """
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink")
    if gpu.is_partitioned:
        not_applicable("the driver does not report NVLink errors while MIG is on")
    evaluate_bit_error_rates(gpu, node)
    most = node.threshold("nvlink.errors_concern")
    counters = [errors for errors in gpu.nvlink_errors if not errors.is_rate]
    erring = [errors for errors in counters if errors.count is not None and errors.count > most]
    recovered = [errors for errors in erring if errors.kind in RECOVERIES]
    fatal = ""
    if recovered:
        with part:
            fatal = ", ".join(f"Xid {code}" for code in fatal_xids(gpu, node))
            expected = "expected no link of a GPU with a fatal Xid to recover"
            fail_if(fatal, f"{in_words(recovered)}, and {fatal}; {expected}")
    others = [errors for errors in erring if not (fatal and errors in recovered)]
    concern_if(others, f"{in_words(others)}; expected none since boot")
    unread = [errors for errors in gpu.nvlink_errors if errors.count is None]
    if unread:
        incomplete(f"NVLink {unread[0].link or 'counters'}: {unread[0].kind} could not be read; expected a count")


def evaluate_bit_error_rates(gpu: Gpu, node: Node) -> None:
    """The verdict on the bit error rates of its links, if they report any."""
    for kind in BIT_ERROR_RATES:
        most = node.threshold(f"nvlink.{kind}_concern")
        rates = [errors for errors in gpu.nvlink_errors if errors.kind == kind]
        noisy = [rate for rate in rates if rate.count is not None and rate.count > most]
        with part:
            concern_if(noisy, f"{in_words(noisy)}; expected at most {most:g}")


def fatal_xids(gpu: Gpu, node: Node) -> list[int]:
    """The Xids of this boot that fail the GPU; none if users may have written them.

    One that names no GPU counts only where there is no other.
    """
    if node.users_write_the_log:
        return []
    own = {pci_address(gpu.pci), *([""] if len(node.gpus) == 1 else [])}
    uuids = {address: gpu_there.uuid for address, gpu_there in gpus_by_address(node).items()}
    findings = evaluate(node.kernel_events, node.catalog, uuids=uuids)
    return sorted({finding.code for finding in findings if finding.severity == "fail" and finding.pci in own})


def in_words(erring: Iterable[NvlinkErrors]) -> str:
    """Counters in one line: `NVLink 5: 12 replay, NVLink 7: 1 recovery`."""
    named = [
        f"NVLink {errors.link}: {errors.count} {errors.kind.replace('_ber', ' BER').replace('_', ' ')}"
        for errors in erring
    ]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return ", ".join(named[:MAX_NAMED]) + more
