"""Placeholders for names: each name always gets the same one, wherever it occurs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from clusterproof.plugins.redaction import known_words
from clusterproof.plugins.redaction.naming import FORMS, Names, has_form, host_places, is_distinctive, name_in
from clusterproof.plugins.redaction.wording import BEGIN, END, Wording, marked, unmarked

_NO_NAME = re.compile(r"[0-]*|none|n/a|unknown|not specified", re.IGNORECASE)
_LOGIN = re.compile(  # where a failed login names a host, even one that only ssh_config knows
    r"(\bjump host |\bno route to |\bssh-keyscan (?:-p \d+ )?)([A-Za-z0-9][\w.-]*)"
    r"|(?<![\w.-])()((?=[\d_.-]*[A-Za-z])[A-Za-z0-9][\w.-]*)(?=\]?:\d{1,5}\b| does not resolve)"
)
_PCI = re.compile(r"(?i)(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")  # an address that every machine has
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,6}){1,3}(?:[-+~][\w.+~-]*)?")
_CASELESS = ("address", "host", "uuid", "mac", "guid", "arn", "account", "instance", "resource", "filesystem", "serial")


class Pseudonyms:
    """The placeholders of one run. Names must be registered before texts that contain them are redacted."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}  # by name; in lower case if the name is not case-sensitive
        self._counts: Counter[str] = Counter()
        self._domains: dict[str, str] = {}  # of hosts that are no nodes, by their first label
        self._structured = Names()  # names that contain an address or an id, such as ip-10-1-2-3
        self._plain = Names()
        self._hosts: set[str] = set()  # known host names, in lower case
        self._common: set[str] = set()  # hosts called `a` or `node`: only replaced where only a host can be
        self._common_places = re.compile(r"(?!)")
        self._wording = Wording(self.word)
        self._done: dict[tuple[str, bool], str] = {}  # many nodes report the same texts

    def know_host(self, name: str, word: str) -> None:
        """Register a host: its full name, and its first label."""
        label = name.split(".")[0]
        for known in (name, label) if label and not label.isdecimal() else (name,):
            is_taken = self._words.get(known.lower(), word) != word and known.lower() in self._hosts
            if _NO_NAME.fullmatch(known) or _PCI.fullmatch(known) or is_taken:
                continue
            self._hosts.add(known.lower())
            self._words[known.lower()] = word
            if is_distinctive(known):
                self._names_for(known).add(known, marked(word))
            elif known not in self._common:
                self._common.add(known)
                self._common_places = host_places(self._common)

    def know(self, name: str, kind: str) -> None:
        """Register a name for replacement anywhere, unless it is a common word or a version."""
        if (
            is_distinctive(name)
            and not _VERSION.fullmatch(name)
            and not (has_form(name) or _PCI.fullmatch(name))
            and name.lower() not in known_words()
        ):
            self._plain.add(name, marked(self.word(kind, name)))

    def know_as(self, name: str, word: str) -> None:
        """Replace a name by this word anywhere."""
        if is_distinctive(name) and not has_form(name):
            self._plain.add(name, marked(word))

    def forget(self) -> None:
        """Forget cached texts, because more names are known."""
        self._done.clear()
        self._wording.forget()

    def text(self, text: str, has_addresses: bool = True, is_login: bool = False) -> str:
        """A text without names. If it contains no addresses, four numbers are a version."""
        if is_login:
            return self._kept(text, has_addresses, is_login)
        known = self._done.get((text, has_addresses))
        if known is None:
            known = self._done[text, has_addresses] = self._kept(text, has_addresses, is_login)
        return known

    def version(self, text: str) -> str:
        """A version, whose numbers are kept."""
        if any(map(str.isspace, text)):
            return self.text(text, has_addresses=False)
        marked_text = self._marked(_unmarkable(text), has_addresses=False)
        return self._wording.kept(marked_text) if BEGIN in marked_text else self._wording.version(marked_text)

    def name(self, kind: str, value: str) -> str:
        """The placeholder for a name, whatever its form."""
        if not value or _NO_NAME.fullmatch(value):
            return value
        text = self._marked(_unmarkable(value), has_addresses=True)
        return unmarked(self._wording.kept(text)) if BEGIN in text else self.word(kind, value)

    def word(self, kind: str, name: str) -> str:
        """The placeholder for a name: always the same one."""
        small = name.lower()
        key = (
            small.replace("_", "-") if kind == "uuid" else small if kind in _CASELESS or small in self._words else name
        )
        if kind in ("address", "host") and key not in self._words and not (key[:1].isdecimal() or ":" in key):
            key = self._without_domain(kind, key)
        if key not in self._words:
            self._counts[kind] += 1
            self._words[key] = _new_word(kind, self._counts[kind], name)
        return self._words[key]

    def _without_domain(self, kind: str, name: str) -> str:
        """A host is the same with and without its domain; in another domain it is another host.

        Unless it is a node, which has names in several, or its name is an address, as in AWS.
        """
        label, _, domain = name.partition(".")
        if label in self._words and label not in self._domains:
            return label
        known = self._domains.get(label) or domain
        if (
            kind == "host"
            and domain
            and not (f"{known}.".startswith(f"{domain}.") or f"{domain}.".startswith(f"{known}."))
        ):
            return name
        self._domains[label] = max(known, domain, key=len)
        return label

    def _kept(self, text: str, has_addresses: bool, is_login: bool) -> str:
        marked_text = self._marked(_unmarkable(text), has_addresses)
        if is_login:
            marked_text = _LOGIN.sub(
                lambda match: (match[1] or "") + marked(self._login_host(match[2] or match[4])), marked_text
            )
        return self._wording.kept(marked_text)

    def _marked(self, text: str, has_addresses: bool) -> str:
        """The text with marked placeholders for known names and for anything in the form of a name."""
        text = self._structured.replaced(text)
        for form in FORMS:
            if has_addresses or form.is_sure or form.kind != "address":

                def pseudonym(match: re.Match[str], kind: str = form.kind, is_name: Any = form.is_name) -> str:
                    name = name_in(match)
                    return match[0][: -len(name)] + marked(self.word(kind, name)) if is_name(match) else match[0]

                text = form.pattern.sub(pseudonym, text)
        text = self._plain.replaced(text)
        return self._common_places.sub(lambda match: marked(self._words[match[0].lower()]), text)

    def _names_for(self, name: str) -> Names:
        return self._structured if has_form(name) else self._plain

    def _login_host(self, name: str) -> str:
        return name if name in self._words.values() else self.word("host", name)


def _new_word(kind: str, number: int, name: str) -> str:
    if kind == "uuid":
        return f"00000000-0000-0000-0000-{number:012x}"
    if kind == "number":  # programs expect a number there
        return str(900_000_000 + number)
    if kind == "hex":
        return f"0x{number:08x}" if name[:2] in ("0x", "0X") else f"{number:08x}"
    return f"{kind}-{number}"


def _unmarkable(text: str) -> str:
    """The text without the characters used as marks."""
    return text.replace(BEGIN, "\ufffd").replace(END, "\ufffd")
