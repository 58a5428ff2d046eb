"""A kernel log in a folder: its node, and whether it is evidence."""

from __future__ import annotations

import re
from pathlib import Path

from clusterproof.plugins.case import label, log_dates, node_log, one_line, watched
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.names import KERNEL_LOG, node_named
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.evidence.parsing import CaptureError

WRITABLE_BY_USERS = "no evidence, as any user can write lines like the kernel's there; expected dmesg or journalctl -k"


def node_of(path: Path, root: Path) -> str:
    """The node of a kernel log or a recording, from its own name or its folder's; empty for other files."""
    return watched.node_of(path) or (label(node_named(path, root)) if KERNEL_LOG.search(path.name) else "")


def read(path: Path, root: Path, text: str, builder: CaseBuilder, clock: Clock, *, is_cut: bool = False) -> None:
    """Add a kernel log's evidence against its node, or why there is none; `is_cut`: it is not all of the log."""
    name = one_line(str(path.relative_to(root)))
    node, why = _node(path, root, name, text)
    if why:
        builder.lack(f"{name}: {why}")
        return
    try:
        for fact in node_log.read(text, node, name, clock):
            builder.facts.append(fact)
    except CaptureError as wrong:
        builder.lack(f"{name}: {wrong}")
        return
    if odd := node_log.unclear_lines(text):
        builder.lack(f"{name}: {number_of(odd, 'line')} of which it is not known what stands before `kernel:`")
    builder.nodes_with_log.append(node)
    builder.log_begins(node, log_dates.begin_of(text, clock))
    if is_cut or odd:
        builder.nodes_in_part.append(node)
    builder.count("kernel log")


def _node(path: Path, root: Path, name: str, text: str) -> tuple[str, str]:
    """The node of a log; or why the log is no evidence."""
    if not node_log.is_log(text):
        return "", "no kernel log; expected the output of dmesg or journalctl -k"
    if node_log.is_of_others_too(text):
        return "", WRITABLE_BY_USERS
    host, named = node_log.host_of(text), node_named(path, root)
    if named and not label(named):
        return "", "what it has for a node's name is none; expected NODE-dmesg.txt"
    node = named or host
    if not node:
        return "", "nothing says of which node it is; expected NODE-dmesg.txt"
    if host and host in re.split(r"[^A-Za-z0-9-]", name):
        node = host
    if host and host != label(node):
        return "", f"no evidence, as its lines are of {one_line(host)}, and its name is not"
    return label(node), ""
