"""Redacts a text word by word: words of the suite, the kernel and drivers stay, all others are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable

from clusterproof.plugins import redaction
from clusterproof.plugins.redaction import folders, known_words

Word = Callable[[str, str], str]  # the placeholder for a name and kind

# Marks around placeholders; they do not occur in texts.
BEGIN, END = "\ue000", "\ue001"
_MARKED = re.compile(f"{BEGIN}[^{BEGIN}{END}]*{END}")

_PUNCTUATION = r"\s,;()\[\]{}<>\"'`|=!?*&^$\\…–—→×°≥≤·“”‘’"
_PIECES = re.compile(f"{BEGIN}[^{BEGIN}{END}]*{END}|([^{_PUNCTUATION}{BEGIN}{END}]+)")
_EDGES = re.compile(r"([.:@+~%#_-]*)(.*?)([.:@+~%#_/-]*)", re.DOTALL)
_BETWEEN = re.compile(r"([:@#%+]+)")
_IN_VERSION = re.compile(r"([\W_]+)")
_HOMES = ("home", "Users", "users", "user")
_NAMED = re.compile(  # a value that is a name, whatever its words
    r"(\b(?:user|user ?name|login|owner|bucket|job(?: ?name)?|comm|name|hostname|account|project|tenant|team)"
    r"\s?[=:]\s?[\"'`]?|\b(?:log-in|login|log in) as |\b(?:as|for) user )"
    rf"([^\s,;\"'`)\]}}{BEGIN}{END}]+)",
    re.IGNORECASE,
)
_CONFIDED = re.compile(  # … and also after a blank, if it contains a digit
    r"((?:\b|_)(?:credentials|secret(?:file)?|password|passwd|token|serial(?: number)?|s/n|ppin|asset tag)"
    r"(?:\s?[=:]\s?|\s)[\"'`]?)"
    rf"((?=[^\s]*\d|[^\s,;]*[=:])[^\s,;\"'`)\]}}{BEGIN}{END}]+|(?<=[=:])[^\s,;\"'`)\]}}{BEGIN}{END}]+)",
    re.IGNORECASE,
)
_PROCESS = re.compile(  # where the kernel names a process, in any script
    r"(\bprocess \d{1,10} \()([^()]{1,64})(?=\))|(\btask )(.{1,64}?)(?=:\d{1,10} blocked)|(\bComm: )(\S{1,64})"
    rf"|(\A(?:traps: )?)([^\[\]{BEGIN}]{{1,64}}?)(?=\[\d{{1,10}}\]:? (?:segfault|general protection))"
    r"|(\bs! \[)([^\]]{1,80}?)(?=:\d{1,10}\])|(\bKilling )(.{1,64}?)(?=:\d{1,10} due)"
    rf"|(\A)([^{BEGIN}]{{1,64}}?)(?= invoked oom-killer|: page allocation failure)"
    rf"|(\bname=['`]?)([^,'`{BEGIN}]{{1,60}})(?=['`]?,)"
)
_LUSTRE = re.compile(
    r"(?<![\w.-])()([\w-]{1,20}?)(?=-(?:OST|MDT)[0-9a-f]{4}(?![0-9a-f]))"
    r"|(\b(?:Unm|M)ounted |\blog '?|\bprofile ')([\w-]{1,20}?)(?=-client\b)"
    r"|(@(?:tcp|o2ib)\d{0,3}:/)([\w-]{1,20})"
)


class Wording:
    """Redacts the words of texts, with one run's placeholders."""

    def __init__(self, word: Word) -> None:
        self._word = word
        self._known: dict[str, str] = {}

    def forget(self) -> None:
        """Forget cached pieces, because more names are known."""
        self._known.clear()

    def kept(self, text: str) -> str:
        """A text in which known names are already marked."""
        text = redaction.FORMS.sub(lambda match: marked(match[0]), text)
        text = _PROCESS.sub(lambda match: self._redacted(match, "process"), text)
        text = _CONFIDED.sub(lambda match: match[1] + self._named("secret", match[2]), text)
        text = _NAMED.sub(lambda match: self._redacted(match, "name"), text)
        text = _LUSTRE.sub(lambda match: self._redacted(match, "filesystem"), text)
        text = _PIECES.sub(lambda match: self._piece(match[1]) if match[1] else match[0], text)
        return unmarked(text)

    def version(self, text: str) -> str:
        """A version: its numbers stay, and known words."""
        if redaction.is_unambiguous_address(text):
            return self._word("address", text)
        return "".join(
            part if not part[:1].isalnum() or redaction.is_of_version(part) else self._word("name", part)
            for part in _IN_VERSION.split(text)
        )

    def _redacted(self, match: re.Match[str], kind: str) -> str:
        before, name = next(
            (prefix, value) for prefix, value in zip(match.groups()[::2], match.groups()[1::2], strict=True) if value
        )
        if _MARKED.search(name) or redaction.is_common(name) or redaction.is_device(name) or name in folders():
            return match[0]
        return f"{before}{self._named(kind, name)}"

    def _named(self, kind: str, name: str) -> str:
        return name if BEGIN in name else marked(self._word(kind, name))

    def _piece(self, piece: str) -> str:
        kept = self._known.get(piece)
        if kept is None:
            kept = self._known[piece] = self._looked_at(piece)
        return kept

    def _looked_at(self, piece: str) -> str:
        if piece.startswith("/") and len(piece) > 1:
            path = piece.rstrip(":.")
            return f"{self._path(path)}{piece[len(path) :]}"
        match = _EDGES.fullmatch(piece)
        before, core, behind = match.groups() if match else ("", piece, "")
        return f"{before}{self._core(core)}{behind}" if core else piece

    def _core(self, core: str) -> str:
        if self._is_kept(core):
            return core
        if "://" in core:
            scheme, _, rest = core.partition("://")
            return f"{self._core(scheme)}://{self._looked_at(rest)}"
        if "/" in core:
            first, _, path = core.partition("/")
            if ":" in first or "@" in first:  # server:/export, 10.1.2.3@tcp:/name
                host = first.rstrip(":")
                return f"{self._core(host)}{first[len(host) :]}{self._path('/' + path)}"
            return "/".join(self._looked_at(part) if part else "" for part in core.split("/"))
        parts = _BETWEEN.split(core)
        if len(parts) > 1:
            return "".join(
                self._looked_at(part) if number % 2 == 0 and part else part for number, part in enumerate(parts)
            )
        if redaction.VERSION.match(core):
            return self.version(core)
        if unit := redaction.UNIT.fullmatch(core):
            return f"{unit[1] if self._is_kept(unit[1]) else self._word('unit', unit[1])}{unit[2]}"
        return self._word(redaction.kind_of(core), core)

    def _is_kept(self, core: str) -> bool:
        return (
            core.lower() in known_words()
            or redaction.is_harmless(core)
            or redaction.is_of_capitals(core, known_words())
        )

    def _path(self, path: str) -> str:
        parts = path.split("/")
        return "/".join(
            self._folder(part, before) if part else part for part, before in zip(parts, ["", *parts], strict=False)
        )

    def _folder(self, part: str, before: str) -> str:
        if before in _HOMES:
            return part if redaction.is_common(part) else self._word("user", part)
        if part in folders() or redaction.is_harmless(part):
            return part
        if redaction.VERSION.match(part):
            return self.version(part)
        file, colon, line = part.partition(":")
        if colon:
            return f"{self._folder(file, before)}:{self._looked_at(line)}"
        return self._word("folder", part)


def marked(word: str) -> str:
    """Mark a word that stays as it is."""
    return f"{BEGIN}{word}{END}"


def unmarked(text: str) -> str:
    """The text without the marks."""
    return text.replace(BEGIN, "").replace(END, "")
