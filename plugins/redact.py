"""`--redact`: the same evidence without the names of things; each name always becomes the same word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from clusterproof.plugins.evidence import NodeEvidence
from clusterproof.plugins.inventory.model import Cluster, Target
from clusterproof.plugins.naming import FORMS, Names, has_form, host_places, is_telling, name_in
from clusterproof.plugins.texts import in_all_texts, named

# Values that name one thing, whatever they look like, by their key in the evidence.
_NAMING_KEYS = {
    "hostname": "host",
    "serial": "serial",
    "uuid": "uuid",
    "cluster_uuid": "fabric",
    "boot_id": "boot",
    "UltraServerId": "ultraserver",
    "CapacityBlockId": "ultraserver",
    "layers": "networknode",
    "NetworkNodes": "networknode",
}
_NAMED = (*_NAMING_KEYS, "source")
_NO_NAME = re.compile(r"[0-]*|none|n/a|unknown|not specified", re.IGNORECASE)
_VERSIONS = frozenset({"driver", "kernel", "vbios", "version", "os"})  # keys of numbers that are no addresses
_PCI_IDS = frozenset({"vendor", "device", "class"})
_PCI_ID = re.compile(r"[0-9a-f]{4}|[0-9a-f]{6}|efa\d?")
_SERVER = re.compile(r"(?:([A-Za-z0-9][\w.-]*):|//([A-Za-z0-9][\w.-]*))/.*")  # server:/export, //server/share
_LUSTRE = re.compile(r".*@\w+:/([\w-]+).*")
_LOGIN = re.compile(  # where the words of a failed log-in name a host, also one that only ssh_config knows
    r"(\bjump host |\bno route to |\bssh-keyscan (?:-p \d+ )?)([A-Za-z0-9][\w.-]*)"
    r"|(?<![\w.-])()((?=[\d_.-]*[A-Za-z])[A-Za-z0-9][\w.-]*)(?=\]?:\d{1,5}\b| does not resolve)"
)
CLUSTER = "cluster"  # the word for any cluster
_KEPT = ("region", "arn", "partition")  # settings that say what kind of a cluster it is
_ARN = re.compile(r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:(?P<account>\d{12}):cluster/(?P<id>[a-z0-9]+)")
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}$")
_ACCOUNT = re.compile(r"(?<![\w.-])\d{12}(?![\w.-])")
_NAMES_OF_AWS = {"MountName": "filesystem", "UltraServerId": "ultraserver", "CapacityBlockId": "ultraserver"}
_NAMES_OF_SLURM = {"name": "host", "host": "host", "address": "host", "reason_user": "user", "switch": "switch"}
_SCHEMA_KEY = re.compile(r"[a-z][a-z_]*")


class Redaction:
    """One run's words for names. `cluster` is the cluster as everybody but the connection sees it.

    What one node calls itself stands in the log of another: nothing is rewritten before every node's names are known.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._words: dict[str, str] = {}  # by name in small letters
        self._counts: Counter[str] = Counter()
        self._structured = Names()  # names that hold an address or an id, as ip-10-1-2-3 does
        self._plain = Names()
        self._common: set[str] = set()  # hosts called `a` or `node`: replaced where only a host can stand
        self._common_places = re.compile(r"(?!)")
        self._done: dict[tuple[str, bool], str] = {}  # many nodes tell the same texts
        names = [target.name for target in cluster.targets]
        prefix, width = _prefix(names), len(str(len(names)))
        self._nodes = {name: f"{prefix}{number:0{width}d}" for number, name in enumerate(names, start=1)}
        for target in cluster.targets:
            for name in filter(None, (target.name, target.address)):
                self._is_host(name, self._nodes[target.name])
        self._is_cluster(cluster)
        self.cluster = replace(
            cluster,
            name=CLUSTER,
            targets=tuple(map(self._target, cluster.targets)),
            settings={
                **{key: self.text(cluster.settings[key]) for key in _KEPT if key in cluster.settings},
                **({"submit_host": "local"} if "submit_host" in cluster.settings else {}),  # that there is one
            },
        )

    @contextmanager
    def rewriting(self, keep: Callable[[NodeEvidence], None]) -> Iterator[Callable[[NodeEvidence], None]]:
        """Yield what takes a node's evidence; at the end, even of a stopped run, `keep` gets it without names."""
        told: list[NodeEvidence] = []

        def learn(evidence: NodeEvidence) -> None:
            self.learn(evidence)
            told.append(evidence)

        try:
            yield learn
        finally:
            for evidence in told:
                keep(self.evidence(evidence))

    def learn(self, evidence: NodeEvidence) -> None:
        """Take note of the names that a node tells: its own, its hardware's and its file servers'."""
        self._done.clear()
        for leaf in evidence.leaves.values():
            for key, told in named(leaf.value, _NAMED):
                if key == "hostname":
                    self._is_host(told, self._nodes[evidence.node])
                elif key in _NAMING_KEYS:
                    self._is_known(told, _NAMING_KEYS[key])
                elif lustre := _LUSTRE.fullmatch(told):
                    self._is_known(lustre[1], "filesystem")
                elif server := _SERVER.fullmatch(told):
                    self._is_known(server[1] or server[2], "host")

    def evidence(self, evidence: NodeEvidence) -> NodeEvidence:
        """One node's evidence without names."""
        detail = self.text(evidence.detail)
        if evidence.unreached:
            detail = _LOGIN.sub(lambda found: (found[1] or "") + self._login_host(found[2] or found[4]), detail)
        return replace(
            evidence,
            node=self._nodes[evidence.node],
            detail=detail,
            probe=self._value(dict(evidence.probe)),
            leaves={
                self._key(name): replace(leaf, value=self._value(leaf.value), detail=self.text(leaf.detail))
                for name, leaf in evidence.leaves.items()
            },
        )

    def of_control_plane(self, evidence: NodeEvidence) -> NodeEvidence:
        """What the control plane told of the cluster, without names; every node has been learned before."""
        self._done.clear()
        for leaf in evidence.leaves.values():
            for key, told in named(leaf.value, _NAMES_OF_AWS):
                self._is_known(told, _NAMES_OF_AWS[key])
        for key, told in named(evidence.leaves["slurm"].value, _NAMES_OF_SLURM) if "slurm" in evidence.leaves else ():
            if _NAMES_OF_SLURM[key] == "host":
                self._is_host(told, self._nodes.get(told) or self._word("host", told))
            else:
                self._is_known(told, _NAMES_OF_SLURM[key])
        return replace(
            evidence,
            node=self.cluster.name,
            detail=self._without_accounts(self.text(evidence.detail)),
            leaves={
                name: replace(
                    leaf,
                    value=in_all_texts(self._value(leaf.value), self._without_accounts),
                    detail=self._without_accounts(self.text(leaf.detail)),
                )
                for name, leaf in evidence.leaves.items()
            },
        )

    def text(self, text: str, has_addresses: bool = True) -> str:
        """A text without names. Where it has no addresses, four numbers are a version."""
        known = self._done.get((text, has_addresses))
        if known is None:
            known = self._done[text, has_addresses] = self._without_names(text, has_addresses)
        return known

    def _without_names(self, text: str, has_addresses: bool) -> str:
        text = self._structured.replaced(text)
        for form in FORMS:
            if has_addresses or form.kind != "address":

                def word(found: re.Match[str], kind: str = form.kind, is_name: Any = form.is_name) -> str:
                    name = name_in(found)
                    return found[0][: -len(name)] + self._word(kind, name) if is_name(found) else found[0]

                text = form.pattern.sub(word, text)
        text = self._plain.replaced(text)
        return self._common_places.sub(lambda found: self._words[found[0].lower()], text)

    def _target(self, target: Target) -> Target:
        """The node as reports see it; how to reach it is nobody else's business."""
        return Target(
            name=self._nodes[target.name],
            group=self.text(target.group),
            instance_type=target.instance_type,
            expect=target.expect,
        )

    def _value(self, told: Any, key: str = "") -> Any:
        if isinstance(told, str):
            return self._told(told, key)
        if isinstance(told, list):
            return [self._value(entry, key) for entry in told]
        if isinstance(told, dict):
            return {self._key(name): self._value(entry, name) for name, entry in told.items()}
        return told

    def _key(self, key: str) -> str:
        return key if _SCHEMA_KEY.fullmatch(key) else self.text(key)

    def _told(self, told: str, key: str) -> str:
        if key in _PCI_IDS and _PCI_ID.fullmatch(told):
            return told
        text = self.text(told, has_addresses=key not in _VERSIONS)
        if key in _NAMING_KEYS and text == told and not _NO_NAME.fullmatch(told):
            return self._word(_NAMING_KEYS[key], told)
        return text

    def _is_host(self, name: str, word: str) -> None:
        """Let a word stand for a host: by its whole name, and by its first label."""
        label = name.split(".")[0]
        for known in (name, label) if label and not label.isdigit() else (name,):
            if known.lower() in self._words or _NO_NAME.fullmatch(known):
                continue
            self._words[known.lower()] = word
            if is_telling(known):
                self._names_for(known).add(known, word)
            else:
                self._common.add(known)
                self._common_places = host_places(self._common)

    def _is_cluster(self, cluster: Cluster) -> None:
        """Let words stand for the cluster, its account and its instances, which are in the addresses of its nodes."""
        arn = _ARN.fullmatch(cluster.settings.get("arn", ""))
        for name in (cluster.name, arn["id"] if arn else ""):
            if is_telling(name) and not has_form(name):
                self._plain.add(name, CLUSTER)
        if arn:
            self._is_known(arn["account"], "account")
        for target in cluster.targets:
            instance = _INSTANCE.search(target.address)
            if instance:
                self._is_host(instance[0], self._nodes[target.name])

    def _without_accounts(self, text: str) -> str:
        """A text of AWS's without account ids: nothing else that AWS tells has twelve digits."""
        return _ACCOUNT.sub(lambda found: self._word("account", found[0]), text)

    def _is_known(self, name: str, kind: str) -> None:
        """Let a word stand for a name wherever it stands, if it is no common word."""
        if is_telling(name) and not has_form(name):
            self._plain.add(name, self._word(kind, name))

    def _names_for(self, name: str) -> Names:
        return self._structured if has_form(name) else self._plain

    def _login_host(self, name: str) -> str:
        return name if name in self._words.values() else self._word("host", name)

    def _word(self, kind: str, name: str) -> str:
        """The word for a name: always the same one."""
        key = name.lower().replace("_", "-") if kind == "uuid" else name.lower()
        if kind in ("address", "host") and key not in self._words and not key[:1].isdigit():
            key = key.split(".")[0]  # a host is the same with its domain and without
        if key not in self._words:
            self._counts[kind] += 1
            number = self._counts[kind]
            self._words[key] = f"00000000-0000-0000-0000-{number:012x}" if kind == "uuid" else f"{kind}-{number}"
        return self._words[key]


def _prefix(names: list[str]) -> str:
    """What a redacted node is called: nothing that a node of the cluster could itself be called."""
    taken = [name.lower() for name in names]
    free = (word for word in ("node", "machine") if not any(re.match(rf"{word}\W?\d", name) for name in taken))
    return next(free, "redacted")
