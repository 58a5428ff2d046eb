"""What the EFA driver wrote to the kernel log."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.catalog.log_words import EfaError, efa_error
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern, not_applicable
from clusterproof.plugins.evidence.kernel_log.events_host import EfaMessage, EfaStarted
from clusterproof.plugins.evidence.kernel_log.facts import Event
from clusterproof.plugins.evidence.kernel_log.forms_hardware import LONGEST_WORDS
from clusterproof.plugins.evidence.kernel_log.wording import how_often, in_list, require_whole_log
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.network,
    mark.preflight,
    mark.prolog,
    mark.epilog,
    mark.hyperpod_node_debugger("A"),
]


@evidence("journalctl -k -b | grep -E ' efa [0-9a-f:.]+|infiniband rdmap'")
def test_efa_driver_errors(node: Node) -> None:
    """EFA driver errors.

    A device that does not answer its driver, or whose reset does not end, is lost until the driver starts it again; its
    port is still reported as ACTIVE. Failed commands are noted. What was logged about a device before its driver last
    started it no longer counts.

    Remedy (reset or reboot): Reload the efa module when no job is running, or reboot the node. Replace the node if the
    error returns.
    """
    if _is_without_efa(node):
        not_applicable("no EFA device on this node")
    events = standing(node.kernel_events)
    kinds: dict[tuple[str, EfaError], list[EfaMessage]] = {}
    for event in events:
        row = efa_error(event.words)
        if row:
            kinds.setdefault((event.device, row), []).append(event)

    def words(verdict: str) -> str:
        return in_list(
            f"{device}: {row.meaning} ({how_often(found, node)}: {found[-1].words[:LONGEST_WORDS]})"
            for (device, row), found in kinds.items()
            if row.verdict == verdict
        )

    failed = words("fail")
    assert not failed, f"{failed}; expected every EFA device to answer its driver"
    require_whole_log(node)
    noted = words("concern")
    if noted:
        concern(f"{noted}; expected no error")


def standing(events: Iterable[Event]) -> list[EfaMessage]:
    """What the driver logged about each device since it last started it."""
    left: list[EfaMessage] = []
    for event in events:
        if isinstance(event, EfaMessage):
            left.append(event)
        elif isinstance(event, EfaStarted):
            left = [message for message in left if message.address != event.address]
    return left


def _is_without_efa(node: Node) -> bool:
    """Whether it has no EFA device and should have none; where that is unknown, the log may still name one."""
    try:
        return not node.efa_devices and not node.expected("efa")
    except Incomplete:
        return False
