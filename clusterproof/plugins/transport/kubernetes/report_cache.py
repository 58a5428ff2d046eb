"""A gate's cache of agents' reports between rounds: logs are read after a change, and otherwise rarely.

The listing of a share is handed to the process that evaluates it, which need not list a large cluster again.

An agent signals a changed result by its pod's condition Ready: the pod is unready for a moment. All pods are listed in
one request, so that only a changed node costs a request of its own, and otherwise once in `REST_S`.

Cached reports are older than those just read. If a node fails only in comparison with others, and did not in the round
before, that age may be the only difference: all logs are read again before the failure counts.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import as_json, record
from clusterproof.plugins.kubernetes.pods import Container, Pod

KEEP = "k8s_keep"  # the setting: a folder
REPORTS = "reports"
PEER_FAILURES = "beside_others.json"
SHARE = "share.json"
NOT_KEPT = (OSError, ValueError, TypeError, KeyError)  # a power loss may leave an empty or partial file
MAX_HEAD = 4096  # bytes of the line before a report
REST_S = 900.0  # maximum age of a report; shorter for some nodes, so that not all are due in one round


@record
class CachedReport:
    """A report, and when it was read (seconds since 1970)."""

    output: bytes
    at: float


@record
class PeerFailures:
    """The nodes that failed only in comparison in the last round; reports read before `since` must be read again."""

    since: float = 0.0
    nodes: frozenset[str] = frozenset()


@record
class ReportCache:
    """The reports in a folder; nothing is cached if that is empty."""

    folder: str

    def current(self, pod: Pod, now: float) -> CachedReport | None:
        """The report of a pod's node, if its log need not be read again."""
        mark, report = self._of(pod.node)
        if not report or not pod.is_ready or mark != mark_of(pod) or report.at < self._peer_failures().since:
            return None
        return report if 0 <= now - report.at < _rest_s(pod.node) else None

    def keep(self, pod: Pod, output: bytes, now: float) -> None:
        """Store a report. A full disk only costs another request later."""
        if not self.folder:
            return
        path = self._path(pod.node)
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            _write(path, f"{now:.3f} {mark_of(pod)}\n".encode() + output)

    def unconfirmed(self, failing: Collection[str], now: float, evaluated: Collection[str]) -> frozenset[str]:
        """Of the nodes that fail only in comparison in this round, those that did not in the one before.

        Entries of nodes that were not evaluated now are kept. If there are any, the next round reads all logs again; by
        then each agent has reported again. None if nothing can be stored: a full disk must not hide a fault.
        """
        if not self.folder:
            return frozenset()
        before = self._peer_failures()
        new = frozenset(failing) - before.nodes
        others = before.nodes.difference(evaluated)
        now_so = {"since": now if new else before.since, "nodes": sorted(others.union(failing))}
        try:
            _write(Path(self.folder) / PEER_FAILURES, json.dumps(now_so).encode())
        except OSError:
            return frozenset()
        return new

    def read_at(self, node: str) -> float | None:
        """When a node's cached report was read, without reading the report itself."""
        if not self.folder:
            return None
        try:
            with self._path(node).open("rb") as report:
                return float(report.readline(MAX_HEAD).split(b" ")[0])
        except NOT_KEPT:
            return None

    def _peer_failures(self) -> PeerFailures:
        try:
            record = json.loads((Path(self.folder) / PEER_FAILURES).read_bytes())
            return PeerFailures(float(record["since"]), frozenset(record["nodes"]))
        except NOT_KEPT:
            return PeerFailures()

    def _of(self, node: str) -> tuple[str, CachedReport | None]:
        if not self.folder:
            return "", None
        try:
            head, _, output = self._path(node).read_bytes().partition(b"\n")
            at, _, mark = head.decode().partition(" ")
            return mark, CachedReport(output, float(at))
        except NOT_KEPT:
            return "", None

    def _path(self, node: str) -> Path:
        return Path(self.folder) / REPORTS / quote(node, safe="")


@record
class AgentPods:
    """The pod of each node's agent, and by node the pods that only resemble one."""

    own: Mapping[str, Pod]
    others: Mapping[str, Pod]


@record
class HandedShare:
    """A part of a cluster to evaluate: its nodes, and their agents as they were a moment ago."""

    targets: tuple[Target, ...]
    agents: AgentPods


def hand_over(folder: Path, targets: Iterable[Target], agents: AgentPods) -> None:
    """Write a share for the process that evaluates it; nothing if there are no nodes or agents. Raises OSError."""
    chosen = {target.name: target for target in targets if agents.own}
    pods = [
        {name: as_json(pod) for name, pod in each.items() if name in chosen} for each in (agents.own, agents.others)
    ]
    if chosen:
        _write(folder / SHARE, json.dumps([as_json(list(chosen.values())), *pods]).encode())
    else:
        (folder / SHARE).unlink(missing_ok=True)


def handed_share(folder: str) -> HandedShare | None:
    """Read what was handed over; None if nothing was, and the cluster must be listed."""
    if not folder:
        return None
    try:
        targets, *pods = json.loads((Path(folder) / SHARE).read_bytes())
        own, others = ({name: _pod(record) for name, record in each.items()} for each in pods)
        return HandedShare(tuple(Target(**target) for target in targets), AgentPods(own, others))
    except (*NOT_KEPT, AttributeError):
        return None


def _pod(record: Mapping[str, Any]) -> Pod:
    return Pod(**{**record, "containers": tuple(Container(**container) for container in record["containers"])})


def mark_of(pod: Pod) -> str:
    """A value that changes when there is something new: another pod, a restart, or a time when it was unready."""
    restarts = sum(container.restarts for container in pod.containers)
    return quote(f"{pod.name} {restarts} {pod.ready}")


def _write(path: Path, data: bytes) -> None:
    """Write atomically. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


def _rest_s(node: str) -> float:
    """Between three quarters of `REST_S` and all of it, constant for a node."""
    return REST_S * (0.75 + 0.25 * (zlib.crc32(node.encode()) % 256) / 256)
