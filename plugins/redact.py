"""`--redact`: the same evidence without the names of things; each name always becomes the same word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from clusterproof.plugins.evidence import Leaf, NodeEvidence
from clusterproof.plugins.inventory.model import Cluster, Target
from clusterproof.plugins.naming import FORMS, is_telling

# Values that name one thing, whatever they look like, by their key in the evidence.
_NAMING_KEYS = {
    "serial": "serial",
    "uuid": "uuid",
    "cluster_uuid": "fabric",
    "hostname": "host",
    "boot_id": "boot",
}
_NO_NAME = re.compile(r"[0-]*|none|n/a|unknown|not specified", re.IGNORECASE)
_VERSIONS = frozenset({"driver", "kernel", "vbios", "version", "os"})  # keys of numbers that are no addresses
_PCI_IDS = frozenset({"vendor", "device", "class"})
_PCI_ID = re.compile(r"[0-9a-f]{4}|[0-9a-f]{6}|efa\d?")
_TOKEN = re.compile(r"[^\W_]+(?:[._-]+[^\W_]+)*")
_SEPARATORS = re.compile(r"([._-]+)")
_DOMAIN = re.compile(r"(?:\.[a-z0-9-]+)*\.[a-z][a-z0-9-]*", re.IGNORECASE)
_REMOTE = re.compile(r"(?://)?([A-Za-z0-9][\w.-]*):?/.*")  # server:/export, //server/share
_LUSTRE = re.compile(r".*@\w+:/([\w-]+)")
_SSH_HOST = re.compile(  # in the words of a failed log-in: a name that ssh_config gave
    r"(?P<before>\bjump host |\bno route to |\bssh-keyscan (?:-p \d+ )?|\[|\A)(?P<host>[A-Za-z0-9][\w.-]*)"
    r"(?P<behind>\]?:\d{1,5}\b|: | does not |(?= >>))"
)


class Redaction:
    """One run's words for names. `cluster` is the cluster as everybody but the connection sees it.

    `learn` every node's evidence before any is rewritten: what one node calls itself may stand in the log of another.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._words: dict[str, str] = {}  # by name in small letters
        self._counts: Counter[str] = Counter()
        self._done: dict[str, str] = {}  # texts: many nodes tell the same
        self._first_pieces: set[str] = set()  # of telling names
        self._odd: list[str] = []  # telling names that are no token
        self._common: list[str] = []  # names that are also common words
        width = len(str(len(cluster.targets)))
        self._nodes = {
            target.name: f"node{number:0{width}d}" for number, target in enumerate(cluster.targets, start=1)
        }
        for target in cluster.targets:
            for name in (target.name, target.address):
                self._is_host(name, self._nodes[target.name])
        self.cluster = replace(
            cluster,
            name="cluster",
            targets=tuple(self._target(target) for target in cluster.targets),
        )

    def learn(self, evidence: NodeEvidence) -> None:
        """Take note of the names that a node tells: its own, its hardware's, its file servers'."""
        for key, name in _named_values(evidence):
            if key == "hostname":
                self._is_host(name, self._nodes[evidence.node])
            elif key in _NAMING_KEYS:
                self._is_telling(name, self._word(_NAMING_KEYS[key], name))
            elif lustre := _LUSTRE.fullmatch(name):
                if is_telling(lustre[1]):
                    self._is_telling(lustre[1], self._word("filesystem", lustre[1]))
            elif (remote := _REMOTE.fullmatch(name)) and not any(
                form.pattern.fullmatch(remote[1]) for form in FORMS
            ):
                self._is_host(remote[1], self._word("host", remote[1]))
        self._done.clear()

    def evidence(self, evidence: NodeEvidence) -> NodeEvidence:
        """One node's evidence without names."""
        detail = evidence.detail
        if evidence.unreached:
            detail = _SSH_HOST.sub(self._ssh_host, self.text(detail))
        return replace(
            evidence,
            node=self._nodes[evidence.node],
            detail=self.text(detail),
            probe=self._value(dict(evidence.probe)),
            leaves={name: self._leaf(leaf) for name, leaf in evidence.leaves.items()},
        )

    def text(self, text: str, has_addresses: bool = True) -> str:
        """A text without names. Without `has_addresses` four numbers are a version."""
        if text not in self._done:
            self._done[text] = self._without_names(text, has_addresses)
        return self._done[text]

    def _without_names(self, text: str, has_addresses: bool) -> str:
        for form in FORMS:
            if form.kind != "address" or has_addresses:
                text = form.pattern.sub(
                    lambda found, form=form: self._word(form.kind, found[0]) if form.is_name(found) else found[0],
                    text,
                )
        return text

    def _value(self, told: Any, key: str = "") -> Any:
        ...
