"""`--redact`: replaces names in the evidence; each name always gets the same placeholder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from clusterproof.plugins.catalog.node import waits_for
from clusterproof.plugins.core.cluster import INSTANCE_ID, Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.redaction import HARDWARE, TYPE, is_common, known_words
from clusterproof.plugins.redaction.kinds import ValueKind, schema_of
from clusterproof.plugins.redaction.policy import without_names
from clusterproof.plugins.redaction.pseudonyms import Pseudonyms

_SERVER = re.compile(r"(?:([A-Za-z0-9][\w.-]*):|//([A-Za-z0-9][\w.-]*))/.*")  # server:/export, //server/share
_LUSTRE = re.compile(r".*@\w+:/([\w-]+).*")
CLUSTER = "cluster"  # the placeholder for any cluster
_KEPT = ("region", "arn", "partition", "ec2")  # settings that describe the kind of cluster
_ARN = re.compile(r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:(?P<account>\d{12}):cluster/(?P<id>[a-z0-9]+)")
_INSTANCE = re.compile(rf"\b{INSTANCE_ID}$")
_OF_TEXT = ("", "text", "number", "version", "hardware", "symbol")  # kinds of value that contain no names
PRINTED = "output"  # the key of a program's output
_LARGEST = 10**8  # of a number without a declared kind


class Redaction:
    """One run's redaction. `cluster` is the cluster as displayed, `policy` the policy.

    A node's name may occur in another node's log: nothing is redacted before all nodes' names are known.
    """

    def __init__(self, cluster: Cluster, policy: Policy = NO_POLICY) -> None:
        self._pseudonyms = Pseudonyms()
        self.text, self.version = self._pseudonyms.text, self._pseudonyms.version
        names = [target.name for target in cluster.targets]
        prefix, width = _prefix(names), len(str(len(names)))
        self._nodes = {name: f"{prefix}{number:0{width}d}" for number, name in enumerate(names, start=1)}
        for target in cluster.targets:
            for name in filter(None, (target.name, target.address)):
                self._pseudonyms.know_host(name, self._nodes[target.name])
            if target.user and not is_common(target.user):
                self._pseudonyms.know(target.user, "user")
        self._know_cluster(cluster)
        for group in dict.fromkeys(target.group for target in cluster.targets if target.group):
            self._pseudonyms.know(group, "group")
        self.cluster = replace(
            cluster,
            name=CLUSTER,
            targets=tuple(map(self._target, cluster.targets)),
            settings={
                **{key: self.text(cluster.settings[key]) for key in _KEPT if key in cluster.settings},
                **({"submit_host": "local"} if "submit_host" in cluster.settings else {}),  # only that there is one
                **({"kubernetes": "context:"} if "kubernetes" in cluster.settings else {}),
            },
            notes=tuple(map(self.text, cluster.notes)),
        )
        self.further_collectors: Collection[str] = ()  # a site's own, by which its checks ask for them
        self._policy = policy
        self.policy = self._policy_without_names()

    def _policy_without_names(self) -> Policy:
        """The policy, with the names known so far redacted as in the evidence; the replacements are for workers."""
        self.of_policy: dict[str, str] = {}
        noted = self._noted
        return without_names(
            self._policy, noted(self.text), noted(self.type_word), noted(self.version), noted(self.node_word)
        )

    def _noted(self, shown: Callable[[str], str]) -> Callable[[str], str]:
        def noted(text: str) -> str:
            return self.of_policy.setdefault(text, shown(text))

        return noted

    @contextmanager
    def rewriting(self, keep: Callable[[NodeEvidence], None]) -> Iterator[Callable[[NodeEvidence], None]]:
        """Yield a function that takes a node's evidence; at the end, even if interrupted, `keep` gets it redacted.

        So is the policy then, with the names that the nodes report: a path in it stays the path that a node mounts.
        """
        learned: list[NodeEvidence] = []

        def learn(evidence: NodeEvidence) -> None:
            self.learn(evidence)
            learned.append(evidence)

        try:
            yield learn
        finally:
            self.policy = self._policy_without_names()
            for evidence in learned:
                keep(self.evidence(evidence))

    def learn(self, evidence: NodeEvidence) -> None:
        """Register the names that a node reports: its own, its hardware's and its file servers'."""
        self._pseudonyms.forget()
        for name, collector in evidence.collectors.items():
            self._learn(collector.value, schema_of(name), evidence.node)
        for collector in evidence.collectors.values():
            for _, source in named(collector.value, ("source",)):
                if lustre := _LUSTRE.fullmatch(source):
                    self._pseudonyms.know(lustre[1], "filesystem")
                elif server := _SERVER.fullmatch(source):
                    self._pseudonyms.know(server[1] or server[2], "host")

    def _learn(self, value: Any, schema: ValueKind, node: str) -> None:
        if isinstance(value, list):
            for entry in value:
                self._learn(entry, schema, node)
        elif isinstance(value, dict):
            for key, entry in value.items():
                self._learn(entry, schema.at(key), node)
        elif isinstance(value, str) and value and schema.kind not in _OF_TEXT:
            if schema.kind == "host" and node in self._nodes:
                self._pseudonyms.know_host(
                    value, self._nodes[node] if schema.is_own else self._pseudonyms.word("host", value)
                )
            elif schema.kind == "host":
                self._pseudonyms.know_host(value, self._nodes.get(value) or self._pseudonyms.word("host", value))
            elif schema.kind != "program" or not is_common(value):
                self._pseudonyms.know(value, schema.kind)

    def evidence(self, evidence: NodeEvidence) -> NodeEvidence:
        """One node's evidence, redacted."""
        return replace(
            evidence,
            node=self._nodes[evidence.node],
            detail=self.text(evidence.detail, is_login=bool(evidence.unreached)),
            probe=self._value(dict(evidence.probe), schema_of("probe")),
            collectors=self._collectors(evidence),
        )

    def of_control_plane(self, evidence: NodeEvidence) -> NodeEvidence:
        """The control plane's evidence, redacted; every node must have been registered before."""
        self._pseudonyms.forget()
        for name, collector in evidence.collectors.items():
            self._learn(collector.value, schema_of(name), "")
        return replace(
            evidence,
            node=self.cluster.name,
            detail=self.text(evidence.detail),
            collectors=self._collectors(evidence),
        )

    def _collectors(self, evidence: NodeEvidence) -> dict[str, Collected]:
        return {
            name if name in self.further_collectors else self._key(name, _NOWHERE): replace(
                collector,
                value=self._value(collector.value, schema_of(name)),
                detail=self.text(collector.detail),
                waits=tuple(self._replaced(name, "symbol") for name in collector.waits),
            )
            for name, collector in evidence.collectors.items()
        }

    def _target(self, target: Target) -> Target:
        """The node as displayed, without how to reach it."""
        return Target(
            name=self._nodes[target.name],
            group=self._pseudonyms.name("group", target.group),
            instance_type=self.type_word(target.instance_type),
            expect=target.expect,
        )

    def type_word(self, name: str) -> str:
        """An instance type, unchanged if it is a public one, else a placeholder."""
        if not name or name.lower() in known_words() or TYPE.fullmatch(name):
            return name
        self._pseudonyms.know(name, "type")
        return self._pseudonyms.word("type", name)

    def node_word(self, name: str) -> str:
        """A node's name as displayed; a placeholder for one that is not in the cluster."""
        return self._nodes.get(name) or self._pseudonyms.word("host", name)

    def _value(self, value: Any, schema: ValueKind) -> Any:
        if isinstance(value, str):
            return self._replaced(value, schema.kind)
        if isinstance(value, list):
            return [self._value(entry, schema) for entry in value]
        if isinstance(value, dict):
            return {
                self._key(key, schema): self._printed(entry, schema)
                if key == PRINTED
                else self._value(entry, schema.at(key))
                for key, entry in value.items()
            }
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if schema.kind in _OF_TEXT[1:]:
                return value
            return 0 if isinstance(value, int) and (schema.kind or abs(value) >= _LARGEST) else value
        return value

    def _printed(self, value: Any, schema: ValueKind) -> Any:
        """A program's output: a line that is a JSON object has the schema of the collector's own value."""
        if not isinstance(value, str):
            return self._value(value, schema.at(PRINTED))
        kept, text = "", ""
        for line in value.splitlines(keepends=True):
            document = self._document(line, schema)
            if document:
                kept += self._replaced(text, schema.at(PRINTED).kind) + document + line[len(line.rstrip()) :]
            text = "" if document else text + line
        return kept + self._replaced(text, schema.at(PRINTED).kind)

    def _document(self, line: str, schema: ValueKind) -> str:
        """A line that is a JSON object, redacted; empty if it is none, or nested too deeply."""
        try:
            document = json.loads(line) if line.startswith("{") else None
            return json.dumps(self._value(document, schema)) if isinstance(document, dict) else ""
        except (ValueError, RecursionError):
            return ""

    def _key(self, key: str, schema: ValueKind) -> str:
        if key.removeprefix("all_") in schema.within or key in ("error", "text"):
            return key
        parts = key.lower().split("_")
        return (
            key
            if all(part in known_words() or (part.isdecimal() and len(part) < 4) for part in parts)
            else self.text(key)
        )

    def _replaced(self, text: str, kind: str) -> str:
        if not text or (kind == "hardware" and HARDWARE.fullmatch(text)):
            return text
        if kind == "symbol" and waits_for([text]):
            return text
        if kind == "version" and any(map(str.isdecimal, text)):
            return self.version(text)
        if kind in _OF_TEXT:
            return self.text(text)
        if kind == "program" and is_common(text):
            return text
        return self._pseudonyms.name(kind, text)

    def _know_cluster(self, cluster: Cluster) -> None:
        """Register the cluster, its account and its instances, which occur in the nodes' addresses."""
        arn = _ARN.fullmatch(cluster.settings.get("arn", ""))
        for name in (cluster.name, arn["id"] if arn else ""):
            self._pseudonyms.know_as(name, CLUSTER)
        if arn:
            self._pseudonyms.know(arn["account"], "account")
        for target in cluster.targets:
            instance = _INSTANCE.search(target.address)
            if instance:
                self._pseudonyms.know_host(instance[0], self._nodes[target.name])


_NOWHERE = ValueKind()


def _prefix(names: list[str]) -> str:
    """The prefix of redacted nodes' names: no node of the cluster may have such a name."""
    taken = [name.lower() for name in names]
    free = (word for word in ("node", "machine") if not any(re.match(rf"{word}\W?\d", name) for name in taken))
    return next(free, "redacted")


def named(value: Any, keys: Collection[str], key: str = "") -> Iterator[tuple[str, str]]:
    """Every text under one of these keys, with its key; also in lists."""
    if isinstance(value, str):
        if value and key in keys:
            yield key, value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from named(entry, keys, name)
    elif isinstance(value, list):
        for entry in value:
            yield from named(entry, keys, key)
