"""`--redact`: the same evidence without the names of things; each name always becomes the same word."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from clusterproof.plugins.evidence import Leaf, NodeEvidence
from clusterproof.plugins.inventory.model import Cluster, Target

# Values that name one thing, whatever they look like, by their key in the evidence.
_NAMING_KEYS = {
    "serial": "serial",
    "uuid": "GPU",
    "cluster_uuid": "fabric",
    "hostname": "host",
    "boot_id": "boot",
}
_PATTERNS = (
    ("uuid", re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")),
    ("instance", re.compile(r"\bi-[0-9a-f]{8,17}\b")),
    ("mac", re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b")),
    (
        "address",
        re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])"),
    ),
    ("address", re.compile(r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z0-9.-]+)?\b")),
    (
        "address",
        re.compile(r"\b(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}\b|\bf[ed][0-9a-f]{2}::[0-9a-fA-F:]+\b"),
    ),
    ("filesystem", re.compile(r"\bfs-[0-9a-f]{8,17}\b")),
)


class Redaction:
    """One run's words for names. `cluster` is the cluster as everybody but the connection sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self._words: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        width = len(str(len(cluster.targets)))
        self._nodes = {
            target.name: f"node{number:0{width}d}" for number, target in enumerate(cluster.targets, start=1)
        }
        names = {target.name: self._nodes[target.name] for target in cluster.targets}
        names |= {target.address: self._nodes[target.name] for target in cluster.targets if target.address}
        self._known = names
        longest_first = sorted(names, key=len, reverse=True)
        self._names = re.compile(
            r"(?<![\w.-])(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w-])" if names else r"(?!)"
        )
        self.cluster = replace(
            cluster,
            name="cluster",
            targets=tuple(self._target(target) for target in cluster.targets),
        )

    def evidence(self, evidence: NodeEvidence) -> NodeEvidence:
        """One node's evidence without names."""
        return replace(
            evidence,
            node=self._nodes[evidence.node],
            detail=self.text(evidence.detail),
            probe=self._value(dict(evidence.probe)),
            leaves={name: self._leaf(leaf) for name, leaf in evidence.leaves.items()},
        )

    def text(self, text: str) -> str:
        """A text without names."""
        text = self._names.sub(lambda found: self._known[found.group()], text)
        for kind, pattern in _PATTERNS:
            text = pattern.sub(lambda found, kind=kind: self._word(kind, found.group()), text)  # type: ignore[misc]
        return text

    def _target(self, target: Target) -> Target:
        return Target(
            name=self._nodes[target.name],
            group=target.group,
            instance_type=target.instance_type,
            expect=target.expect,
        )

    def _leaf(self, leaf: Leaf) -> Leaf:
        return replace(leaf, value=self._value(leaf.value), detail=self.text(leaf.detail))

    def _value(self, told: Any, key: str = "") -> Any:
        if isinstance(told, str):
            if key in _NAMING_KEYS and told and told not in self._known:
                return self._word(_NAMING_KEYS[key], told)
            return self.text(told)
        if isinstance(told, list):
            return [self._value(entry) for entry in told]
        if isinstance(told, dict):
            return {name: self._value(entry, name) for name, entry in told.items()}
        return told

    def _word(self, kind: str, name: str) -> str:
        if name not in self._words:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._words[name] = f"{kind}-{self._counts[kind]}"
        return self._words[name]
