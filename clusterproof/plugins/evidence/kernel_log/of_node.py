"""What a node's kernel log shows, as far as it counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import Absent, CollectorData, collected_by
from clusterproof.plugins.evidence.field import flag, number, optional, read, table, values, whole
from clusterproof.plugins.evidence.kernel_log import facts as log_of_the_kernel
from clusterproof.plugins.evidence.kernel_log.line import IGNORING_CASE, unwrap
from clusterproof.plugins.evidence.kernel_log.window import since_boot
from clusterproof.plugins.evidence.pattern import Pattern

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

OF_NEURON = Pattern(r"neuron", IGNORING_CASE)  # so begin the lines of its driver


@collected_by("kernel_log")
def kernel_events(node: Node, log: CollectorData) -> log_of_the_kernel.Events:
    """What the kernel log says of GPUs and of the host: of this boot, and within the window that counts."""
    events = log_of_the_kernel.of_this_boot(log_of_the_kernel.parse(log.get("lines", log_of_the_kernel.lines)))
    if node.users_write_the_log:
        events = log_of_the_kernel.of_no_gpu(events)
    return events if node.since.is_boot else log_of_the_kernel.within(events, node.window_begins, node.boot.booted)


@collected_by("kernel_log")
def users_write_the_log(node: Node, log: CollectorData) -> bool:
    """Whether users can have whole records written: those of Neuron devices can (NEURON_IOCTL_PRINTK)."""
    try:
        return bool(node.neuron.on_bus or node.neuron.devices)
    except Absent:
        return False
    except Incomplete:
        return any(OF_NEURON.match(unwrap(line[1])[1]) for line in log.get("lines", log_of_the_kernel.lines))


@collected_by("kernel_log")
def kernel_log_is_cut(node: Node, log: CollectorData) -> bool:
    """Whether the log had already lost records that count."""
    if node.since.is_boot or not log.get("truncated", flag):
        return log.get("truncated", flag)
    whole_from = log.get("whole_from", optional(number))
    return whole_from is None or whole_from > node.window_begins


@collected_by("kernel_log")
def kernel_lines_cut(node: Node, log: CollectorData) -> Mapping[str, int]:
    """How many lines that may count were cut from the node's log, by their class: `file_servers`, `others`, …"""
    cut = {name: read(data, values, name) for name, data in (log.get("cut", optional(table)) or {}).items()}
    begins = -math.inf if node.since.is_boot else node.window_begins
    return {
        name: read(data[0], whole, "cut")
        for name, data in cut.items()
        if len(data) == 2 and read(data[1], number, "cut") >= begins
    }


@collected_by("kernel_log")
def kernel_lines_uncounted(node: Node, log: CollectorData) -> int:
    """How many of the kernel's own lines were left out that were each unlike the others."""
    return log.get("uncounted", optional(whole)) or 0


@collected_by("kernel_log")
def kernel_lines_folded(node: Node, log: CollectorData) -> Mapping[str, int]:
    """How many lines with ever different words of users were left out, by their class: `segf`, `INFO: task`, …"""
    folded = log.get("folded", optional(table)) or {}
    return {name: read(count, whole, name) for name, count in folded.items()}


def counting(node: Node, data: list[log_of_the_kernel.Line]) -> list[log_of_the_kernel.Line]:
    """Those lines of the kernel log that may be within the window. Raises Incomplete."""
    if node.since.is_boot:
        return data
    begins, booted = node.window_begins, node.boot.booted
    return [line for line in data if line[0] is None or since_boot(line[0], booted) >= begins]


@collected_by()
def window_begins(node: Node) -> float:
    """When what counts of the kernel log begins, in seconds since boot. Raises Incomplete."""
    return node.since.begins(node.boot.uptime_s, node.boot.booted)
