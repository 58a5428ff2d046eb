"""`--redact`: the same evidence without the names of things; each name always becomes the same word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from clusterproof.plugins.catalog.waits import waits_for
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.redaction.harmless import HARDWARE, TYPE, is_common
from clusterproof.plugins.redaction.kinds import Place, place_of
from clusterproof.plugins.redaction.naming import FORMS, Names, has_form, host_places, is_telling, name_in
from clusterproof.plugins.redaction.policy import without_names
from clusterproof.plugins.redaction.texts import named
from clusterproof.plugins.redaction.vocabulary import words
from clusterproof.plugins.redaction.wording import BEGIN, END, Wording, marked, unmarked

_NO_NAME = re.compile(r"[0-]*|none|n/a|unknown|not specified", re.IGNORECASE)
_SERVER = re.compile(r"(?:([A-Za-z0-9][\w.-]*):|//([A-Za-z0-9][\w.-]*))/.*")  # server:/export, //server/share
_LUSTRE = re.compile(r".*@\w+:/([\w-]+).*")
_LOGIN = re.compile(  # where the words of a failed log-in name a host, also one that only ssh_config knows
    r"(\bjump host |\bno route to |\bssh-keyscan (?:-p \d+ )?)([A-Za-z0-9][\w.-]*)"
    r"|(?<![\w.-])()((?=[\d_.-]*[A-Za-z])[A-Za-z0-9][\w.-]*)(?=\]?:\d{1,5}\b| does not resolve)"
)
CLUSTER = "cluster"  # the word for any cluster
_KEPT = ("region", "arn", "partition", "ec2")  # settings that say what kind of a cluster it is
_ARN = re.compile(r"arn:[a-z-]+:sagemaker:[a-z0-9-]+:(?P<account>\d{12}):cluster/(?P<id>[a-z0-9]+)")
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}$")
_PCI = re.compile(r"(?i)(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")  # an address that every machine has
_OF_TEXT = ("", "text", "number", "version", "hardware", "symbol")  # kinds of place that hold no name
_CASELESS = ("address", "host", "uuid", "mac", "guid", "arn", "account", "instance", "resource", "filesystem", "serial")
_LARGEST = 10**8  # of a number of which nobody declared what it is


class Redaction:
    """One run's words for names. `cluster` is the cluster as everybody but the connection sees it, `policy` the policy.

    What one node calls itself stands in the log of another: nothing is rewritten before every node's names are known.
    """

    def __init__(self, cluster: Cluster, policy: Policy = NO_POLICY) -> None:
        self._words: dict[str, str] = {}  # by name; by name in small letters, where those mean the same
        self._counts: Counter[str] = Counter()
        self._structured = Names()  # names that hold an address or an id, as ip-10-1-2-3 does
        self._plain = Names()
        self._hosts: set[str] = set()  # names that are known to be of hosts, in small letters
        self._common: set[str] = set()  # hosts called `a` or `node`: replaced where only a host can stand
        self._common_places = re.compile(r"(?!)")
        self._wording = Wording(self._word)
        self._done: dict[tuple[str, bool], str] = {}  # many nodes tell the same texts
        names = [target.name for target in cluster.targets]
        prefix, width = _prefix(names), len(str(len(names)))
        self._nodes = {name: f"{prefix}{number:0{width}d}" for number, name in enumerate(names, start=1)}
        for target in cluster.targets:
            for name in filter(None, (target.name, target.address)):
                self._is_host(name, self._nodes[target.name])
            if target.user and not is_common(target.user):
                self._is_known(target.user, "user")
        self._is_cluster(cluster)
        for group in dict.fromkeys(target.group for target in cluster.targets if target.group):
            self._is_known(group, "group")
        self.cluster = replace(
            cluster,
            name=CLUSTER,
            targets=tuple(map(self._target, cluster.targets)),
            settings={
                **{key: self.text(cluster.settings[key]) for key in _KEPT if key in cluster.settings},
                **({"submit_host": "local"} if "submit_host" in cluster.settings else {}),  # that there is one
                **({"kubernetes": "context:"} if "kubernetes" in cluster.settings else {}),
            },
            notes=tuple(map(self.text, cluster.notes)),
        )
        self.of_policy: dict[str, str] = {}  # what of the policy became what, for workers
        noted = self._noted
        self.policy = without_names(policy, noted(self.text), noted(self.type_word), noted(self.version))

    def _noted(self, shown: Callable[[str], str]) -> Callable[[str], str]:
        def noted(text: str) -> str:
            return self.of_policy.setdefault(text, shown(text))

        return noted

    @contextmanager
    def rewriting(self, keep: Callable[[NodeEvidence], None]) -> Iterator[Callable[[NodeEvidence], None]]:
        """Yield what takes a node's evidence; at the end, even of a stopped run, `keep` gets it without names."""
        data: list[NodeEvidence] = []

        def learn(evidence: NodeEvidence) -> None:
            self.learn(evidence)
            data.append(evidence)

        try:
            yield learn
        finally:
            for evidence in data:
                keep(self.evidence(evidence))

    def learn(self, evidence: NodeEvidence) -> None:
        """Take note of the names that a node tells: its own, its hardware's and its file servers'."""
        self._forget()
        for name, collector in evidence.collectors.items():
            self._learn(collector.value, place_of(name), evidence.node)
        for collector in evidence.collectors.values():
            for _, source in named(collector.value, ("source",)):
                if lustre := _LUSTRE.fullmatch(source):
                    self._is_known(lustre[1], "filesystem")
                elif server := _SERVER.fullmatch(source):
                    self._is_known(server[1] or server[2], "host")

    def _learn(self, data: Any, place: Place, node: str) -> None:
        if isinstance(data, list):
            for entry in data:
                self._learn(entry, place, node)
        elif isinstance(data, dict):
            for key, entry in data.items():
                self._learn(entry, place.at(key), node)
        elif isinstance(data, str) and data and place.kind not in _OF_TEXT:
            if place.kind == "host" and node in self._nodes:
                self._is_host(data, self._nodes[node] if place.is_own else self._word("host", data))
            elif place.kind == "host":
                self._is_host(data, self._nodes.get(data) or self._word("host", data))
            elif place.kind != "program" or not is_common(data):
                self._is_known(data, place.kind)

    def evidence(self, evidence: NodeEvidence) -> NodeEvidence:
        """One node's evidence without names."""
        return replace(
            evidence,
            node=self._nodes[evidence.node],
            detail=self.text(evidence.detail, is_login=bool(evidence.unreached)),
            probe=self._value(dict(evidence.probe), place_of("probe")),
            collectors=self._collectors(evidence),
        )

    def of_control_plane(self, evidence: NodeEvidence) -> NodeEvidence:
        """What the control plane told of the cluster, without names; every node has been learned before."""
        self._forget()
        for name, collector in evidence.collectors.items():
            self._learn(collector.value, place_of(name), "")
        return replace(
            evidence, node=self.cluster.name, detail=self.text(evidence.detail), collectors=self._collectors(evidence)
        )

    def _collectors(self, evidence: NodeEvidence) -> dict[str, Collected]:
        return {
            self._key(name, _NOWHERE): replace(
                collector,
                value=self._value(collector.value, place_of(name)),
                detail=self.text(collector.detail),
                waits=tuple(self._replaced(name, "symbol") for name in collector.waits),
            )
            for name, collector in evidence.collectors.items()
        }

    def text(self, text: str, has_addresses: bool = True, is_login: bool = False) -> str:
        """A text without names. Where it has no addresses, four numbers are a version."""
        if is_login:
            return self._kept(text, has_addresses, is_login)
        known = self._done.get((text, has_addresses))
        if known is None:
            known = self._done[text, has_addresses] = self._kept(text, has_addresses, is_login)
        return known

    def version(self, text: str) -> str:
        """A version, of which the numbers stay."""
        if any(map(str.isspace, text)):
            return self.text(text, has_addresses=False)
        data = self._marked(_unmarkable(text), has_addresses=False)
        return self._wording.kept(data) if BEGIN in data else self._wording.version(data)

    def _kept(self, text: str, has_addresses: bool, is_login: bool) -> str:
        marked_text = self._marked(_unmarkable(text), has_addresses)
        if is_login:
            marked_text = _LOGIN.sub(
                lambda found: (found[1] or "") + marked(self._login_host(found[2] or found[4])), marked_text
            )
        return self._wording.kept(marked_text)

    def _marked(self, text: str, has_addresses: bool) -> str:
        """The text with a word, marked as one, in the place of every known name and of what has the form of one."""
        text = self._structured.replaced(text)
        for form in FORMS:
            if has_addresses or form.kind != "address":

                def word(found: re.Match[str], kind: str = form.kind, is_name: Any = form.is_name) -> str:
                    name = name_in(found)
                    return found[0][: -len(name)] + marked(self._word(kind, name)) if is_name(found) else found[0]

                text = form.pattern.sub(word, text)
        text = self._plain.replaced(text)
        return self._common_places.sub(lambda found: marked(self._words[found[0].lower()]), text)

    def _forget(self) -> None:
        """Look at every text again: more names are known."""
        self._done.clear()
        self._wording.forget()

    def _target(self, target: Target) -> Target:
        """The node as reports see it; how to reach it is nobody else's business."""
        return Target(
            name=self._nodes[target.name],
            group=self._name("group", target.group),
            instance_type=self.type_word(target.instance_type),
            expect=target.expect,
        )

    def type_word(self, name: str) -> str:
        """An instance type, as it is where everybody has it, else a word for it."""
        if not name or name.lower() in words() or TYPE.fullmatch(name):
            return name
        self._is_known(name, "type")
        return self._word("type", name)

    def _value(self, data: Any, place: Place) -> Any:
        if isinstance(data, str):
            return self._replaced(data, place.kind)
        if isinstance(data, list):
            return [self._value(entry, place) for entry in data]
        if isinstance(data, dict):
            return {self._key(key, place): self._value(entry, place.at(key)) for key, entry in data.items()}
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            if place.kind in _OF_TEXT[1:]:
                return data
            return 0 if isinstance(data, int) and (place.kind or abs(data) >= _LARGEST) else data
        return data

    def _key(self, key: str, place: Place) -> str:
        if key in place.within or key in ("error", "text"):
            return key
        parts = key.lower().split("_")
        return key if all(part in words() or (part.isdecimal() and len(part) < 4) for part in parts) else self.text(key)

    def _replaced(self, data: str, kind: str) -> str:
        if not data or (kind == "hardware" and HARDWARE.fullmatch(data)):
            return data
        if kind == "symbol" and waits_for([data]):
            return data
        if kind == "version" and any(map(str.isdecimal, data)):
            return self.version(data)
        if kind in _OF_TEXT:
            return self.text(data)
        if kind == "program" and is_common(data):
            return data
        return self._name(kind, data)

    def _name(self, kind: str, data: str) -> str:
        """The word for what names one thing, whatever it looks like."""
        if not data or _NO_NAME.fullmatch(data):
            return data
        text = self._marked(_unmarkable(data), has_addresses=True)
        return unmarked(self._wording.kept(text)) if BEGIN in text else self._word(kind, data)

    def _is_host(self, name: str, word: str) -> None:
        """Let a word stand for a host: by its whole name, and by its first label."""
        label = name.split(".")[0]
        for known in (name, label) if label and not label.isdigit() else (name,):
            is_taken = self._words.get(known.lower(), word) != word and known.lower() in self._hosts
            if _NO_NAME.fullmatch(known) or _PCI.fullmatch(known) or is_taken:
                continue
            self._hosts.add(known.lower())
            self._words[known.lower()] = word
            if is_telling(known):
                self._names_for(known).add(known, marked(word))
            elif known not in self._common:
                self._common.add(known)
                self._common_places = host_places(self._common)

    def _is_cluster(self, cluster: Cluster) -> None:
        """Let words stand for the cluster, its account and its instances, which are in the addresses of its nodes."""
        arn = _ARN.fullmatch(cluster.settings.get("arn", ""))
        for name in (cluster.name, arn["id"] if arn else ""):
            if is_telling(name) and not has_form(name):
                self._plain.add(name, marked(CLUSTER))
        if arn:
            self._is_known(arn["account"], "account")
        for target in cluster.targets:
            instance = _INSTANCE.search(target.address)
            if instance:
                self._is_host(instance[0], self._nodes[target.name])

    def _is_known(self, name: str, kind: str) -> None:
        """Let a word stand for a name wherever it stands, if it is no common word."""
        if is_telling(name) and not (has_form(name) or _PCI.fullmatch(name)) and name.lower() not in words():
            self._plain.add(name, marked(self._word(kind, name)))

    def _names_for(self, name: str) -> Names:
        return self._structured if has_form(name) else self._plain

    def _login_host(self, name: str) -> str:
        return name if name in self._words.values() else self._word("host", name)

    def _word(self, kind: str, name: str) -> str:
        """The word for a name: always the same one."""
        small = name.lower()
        key = (
            small.replace("_", "-") if kind == "uuid" else small if kind in _CASELESS or small in self._words else name
        )
        if kind in ("address", "host") and key not in self._words and not key[:1].isdigit():
            key = key.split(".")[0]  # a host is the same with its domain and without
        if key not in self._words:
            self._counts[kind] += 1
            self._words[key] = _new_word(kind, self._counts[kind], name)
        return self._words[key]


def _new_word(kind: str, number: int, name: str) -> str:
    if kind == "uuid":
        return f"00000000-0000-0000-0000-{number:012x}"
    if kind == "number":  # where a number stands, programs expect one
        return str(900_000_000 + number)
    if kind == "hex":
        return f"0x{number:08x}" if name[:2] in ("0x", "0X") else f"{number:08x}"
    return f"{kind}-{number}"


def _unmarkable(text: str) -> str:
    """The text without what marks words."""
    return text.replace(BEGIN, "\ufffd").replace(END, "\ufffd")


_NOWHERE = Place()


def _prefix(names: list[str]) -> str:
    """What a redacted node is called: nothing that a node of the cluster could itself be called."""
    taken = [name.lower() for name in names]
    free = (word for word in ("node", "machine") if not any(re.match(rf"{word}\W?\d", name) for name in taken))
    return next(free, "redacted")
