"""Recognizes names in a text: the forms of addresses, serial numbers and ids, and host names."""

from __future__ import annotations

import ipaddress
import re
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass


class Names:
    """Names that are replaced anywhere in a text: as a whole, or as a part between `.`, `_` and `-`.

    A host name includes its domain, and is not case-sensitive.
    """

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._first: set[str] = set()  # the first part of each: rejects most words of a text early
        self._most_pieces = 0  # of one name, including separators
        self._odd: list[str] = []  # names with blanks or slashes, which are no tokens

    def add(self, name: str, word: str) -> None:
        """Replace `name` by `word` from now on; a name with a word keeps it."""
        key = name.lower()
        if key in self._words:
            return
        self._words[key] = word
        if _TOKEN.fullmatch(key):
            pieces = _SEPARATORS.split(key)
            self._first.add(pieces[0])
            self._most_pieces = max(self._most_pieces, len(pieces))
        else:
            insort(self._odd, re.escape(name), key=lambda odd: -len(odd))  # one may be a prefix of another

    def replaced(self, text: str) -> str:
        """The text with every name replaced."""
        if self._odd:
            whole = rf"(?<![^\W_])(?:{'|'.join(self._odd)})(?![^\W_])"
            text = re.sub(whole, lambda match: self._words[match[0].lower()], text)
        return _TOKEN.sub(self._token, text) if self._first else text

    def _token(self, match: re.Match[str]) -> str:
        pieces = _SEPARATORS.split(match[0])  # part, separator, part, …
        if self._first.isdisjoint(map(str.lower, pieces)):
            return match[0]
        replaced: list[str] = []
        at = 0
        while at < len(pieces):
            word, behind = self._longest(pieces, at)
            replaced.append(word)
            at = behind
        return "".join(replaced)

    def _longest(self, pieces: list[str], at: int) -> tuple[str, int]:
        """The replacement for the longest name that begins with piece `at`, or the piece itself; and its end."""
        if pieces[at].lower() in self._first:
            for behind in range(at + min(self._most_pieces, len(pieces) - at), at, -2):
                word = self._words.get("".join(pieces[at:behind]).lower())
                if word is not None:
                    is_domain = _DOMAIN.fullmatch("".join(pieces[behind : behind + _MAX_LABELS]))
                    return word, behind + _MAX_LABELS if is_domain else behind
        return pieces[at], at + 1


@dataclass(frozen=True, slots=True)
class NamePattern:
    """One form of name: its pattern, and whether a match really is a name (a version looks like an address).

    A group `label` in the pattern precedes the name and is kept. One that `is_sure` is an address even where
    versions are expected.
    """

    kind: str
    pattern: re.Pattern[str]
    is_name: Callable[[re.Match[str]], object] = bool
    is_sure: bool = False


def name_in(match: re.Match[str]) -> str:
    """The name itself, without its label."""
    return match[0][len(match.groupdict().get("label") or "") :]


def is_not_zero(match: re.Match[str]) -> bool:
    """Whether it is a real id: all zeros identify nothing."""
    return bool(name_in(match).strip("0:-_"))


def is_address_v4(match: re.Match[str]) -> bool:
    """Whether four numbers are a host's address: yes, unless the preceding word says a version."""
    if _VERSION_BEFORE.search(match.string, max(0, match.start() - 40), match.start()):
        return False
    return _names_a_host(match[0])


def is_of_numbers(match: re.Match[str]) -> bool:
    """Whether four or more numbers begin with an address: `10.1.2.3.53` is one with its port."""
    four = _FIRST_V4.match(match[0])
    is_version = _VERSION_BEFORE.search(match.string, max(0, match.start() - 40), match.start())
    return bool(four) and (not is_version or match.string[match.start() - 1] in "vV") and _names_a_host(match[0])


def is_unambiguous_address(match: re.Match[str]) -> bool:
    """Whether four of these numbers are certainly an address and no version: by size, or by context."""
    parts = [int(part) for part in match[0].split(".")]
    fours = [parts[at : at + 4] for at in range(len(parts) - 3)]
    is_of_host = _HOST_BEFORE.search(match.string, 0, match.start()) or _HOST_BEHIND.match(match.string, match.end())
    return any(
        max(four) < 256
        and (is_of_host or max(four) >= _LARGE_PART or four[0] == _PRIVATE)
        and _names_a_host(".".join(map(str, four)))
        for four in fours
    )


def is_large_or_private(match: re.Match[str]) -> bool:
    """Whether four numbers joined by `-` are an address, which smaller ones need not be."""
    parts = [int(part) for part in match[0].split("-")]
    return max(parts) >= _LARGE_PART or parts[0] == _PRIVATE


def _names_a_host(numbers: str) -> bool:
    address = ipaddress.ip_address(".".join(numbers.split(".")[:4]))
    return not (address.is_loopback or address.is_unspecified or address.is_link_local)


def is_address_v6(match: re.Match[str]) -> bool:
    """Whether hexadecimal groups are a host's IPv6 address."""
    try:
        address = ipaddress.IPv6Address(name_in(match))
    except ValueError:
        return False
    return int(address) > 1  # `::` is unspecified, `::1` loopback


def is_distinctive(name: str) -> bool:
    """Whether a name is unusual enough to be replaced anywhere."""
    if len(name) < _SHORTEST or name.lower() in _WORDS or _VOCABULARY.fullmatch(name):
        return False
    return not _NUMBERS.fullmatch(name) or len(name) >= _SHORTEST_NUMBER or _ADDRESS_V4.fullmatch(name) is not None


_TOKEN = re.compile(r"[^\W_]+(?:[._-]+[^\W_]+)*")
_SEPARATORS = re.compile(r"([._-]+)")
_DOMAIN = re.compile(r"(?:\.[a-z0-9-]+)*\.[a-z][a-z0-9-]*", re.IGNORECASE)
_MAX_LABELS = 20  # of a domain, including separators
_SHORTEST = 4  # characters of a host name that does not occur in texts by chance
_SHORTEST_NUMBER = 8  # characters of a serial number
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_ADDRESS_V4 = re.compile(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\.?\w)")
_FIRST_V4 = re.compile(rf"(?:{_OCTET}\.){{3}}{_OCTET}(?!\d)")
_NUMBERS_V4 = re.compile(r"(?<!\d)\d{1,3}(?:\.\d{1,3}){3,}(?!\d)")
_LARGE_PART = 100  # of an IP address, but of no four-part version
_PRIVATE = 10  # first number of most private addresses
_HOST_BEFORE = re.compile(r"(?:@|//|::ffff:)\Z", re.IGNORECASE)
_HOST_BEHIND = re.compile(r":\d|%|/\d|\.(?:sh|service|timer|socket|conf|log|local|internal)\b")
_VERSION_BEFORE = re.compile(
    r"(?<![A-Za-z])(?:version|driver|release|firmware|installer|libfabric|nccl|cuda|fw|ver|v)[\s:=/\"'is-]*\Z",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"[\d._-]+")
_VOCABULARY = re.compile(  # words of evidence with digits, like host names
    r"(?:uverbs|rdmap|mlx|nvme|efa|eth|xid|pid|dev|cpu)[\d_snp]*|(?:ml\.)?[a-z]{1,3}\d[a-z-]*\.(?:\d*xlarge|large|metal\S*)",
    re.IGNORECASE,
)
_COMMON = """
absent active address alive auth boot broke client cluster command containerd controller cuda default denied
device disabled docker domain driver enabled error exit fabric failed false fatal file gpus head healthy hexdump
host hung inactive infiniband info init initializing instance kernel lanes libfabric limits link linkup linux
loaded local localhost login lost lustre memory mount mounts munge name network node none nonfatal not-found
nvidia nvidia-fabricmanager nvidia-persistenced nvlink nvml nvrm nvswitch output path platform port processes
protocol provider proxy rdma refused root running server service services slurm slurmctld slurmd source ssh sshd
state status storage stuck sxid systemd task test text timed_out tmpfs told true type ubuntu unit user values
version worker zombies
"""
_WORDS = frozenset(_COMMON.split())

_HEX = "[0-9a-fA-F]"
_LABEL = rf"(?<![\w:.])(?P<label>(?!{_HEX}{{1,4}}:)[\w.-]{{1,40}}:)?"  # `addr:` before groups that contain colons
FORMS = (
    NamePattern("arn", re.compile(r"\barn:aws[a-z-]*:[a-z0-9-]*:[a-z0-9-]*:\d{12}:[\w+=,.@:/*-]*[\w*]")),
    NamePattern(
        "uuid",
        re.compile(rf"(?<![0-9A-Za-z]){_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}(?![0-9A-Za-z])"),
        is_not_zero,
    ),
    NamePattern("account", re.compile(r"(?<!\d)\d{4}-\d{4}-\d{4}(?!\d)"), is_not_zero),  # the format of AWS's console
    NamePattern("id", re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9A-Za-z])")),
    NamePattern("key", re.compile(r"\b(?:SHA256:[0-9A-Za-z+/]{43}|MD5(?::[0-9a-f]{2}){16})")),
    NamePattern("mac", re.compile(rf"{_LABEL}(?:{_HEX}{{2}}:){{5,19}}{_HEX}{{2}}(?![\w:])"), is_not_zero),
    NamePattern("mac", re.compile(rf"(?<![\w-])(?:{_HEX}{{2}}-){{5}}{_HEX}{{2}}(?![\w-])")),
    NamePattern("mac", re.compile(rf"(?<=[a-z]x){_HEX}{{12}}(?:{_HEX}{{4}})?(?![0-9A-Za-z])")),  # enx…, rocex…, ibx…
    NamePattern("guid", re.compile(rf"{_LABEL}(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}(?![\w:])"), is_not_zero),
    NamePattern(
        "address",
        re.compile(rf"{_LABEL}[0-9a-fA-F:]{{2,39}}(?:\d{{1,3}}(?:\.\d{{1,3}}){{3}})?(?![\w:]|(?:\.\d{{1,3}}){{3}})"),
        is_address_v6,
    ),
    NamePattern("address", _ADDRESS_V4, is_address_v4),
    NamePattern("address", _NUMBERS_V4, is_of_numbers),
    NamePattern("address", _NUMBERS_V4, is_unambiguous_address, is_sure=True),
    NamePattern(
        "address",
        re.compile(rf"(?<![\w.-])(?:{_OCTET}-){{3}}{_OCTET}(?![\w-])"),
        is_large_or_private,
        is_sure=True,
    ),
    NamePattern(
        "address",
        re.compile(
            r"(?<![0-9A-Za-z])(?:ip|ec2)-(?:\d{1,3}-){3}\d{1,3}(?![0-9A-Za-z-])(?:\.[a-z0-9-]+)*\b", re.IGNORECASE
        ),
        is_sure=True,
    ),
    NamePattern("instance", re.compile(r"\bm?i-(?:[0-9a-f]{17}|[0-9a-f]{8})(?![0-9a-f])")),
    NamePattern("filesystem", re.compile(r"\bfs(?:ap|mt|vol)?-(?:[0-9a-f]{17}|[0-9a-f]{8})(?![0-9a-f])")),
    NamePattern(
        "resource",
        re.compile(
            r"(?<![a-z])(?:vol|eni|subnet|vpc|vpce|sg|ami|snap|rtb|igw|eigw|nat|acl|nn|cr|eipalloc)-?"
            r"(?:[0-9a-f]{17}|[0-9a-f]{8})(?![0-9a-f])"
        ),
    ),
    NamePattern(
        "host",
        re.compile(r"\b(?:[a-z0-9-]{1,63}\.){1,8}(?:internal|local|lan|corp|intranet)(?![\w-])", re.IGNORECASE),
    ),
)


def has_form(name: str) -> bool:
    """Whether a name contains an address or an id."""
    return any(match and form.is_name(match) for form in FORMS for match in [form.pattern.search(name)])


def host_places(names: set[str]) -> re.Pattern[str]:
    """These names where only a host's can be: after `host `, `@` or `//`; before ` kernel:`, `:/` or a port."""
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    behind = rf"(?:(?<=\bhost )|(?<=\bto )|(?<=@)|(?<=//))(?:{either})(?![\w-])"
    before = rf"(?<![\w.:-])(?:{either})(?= kernel:|:/|:\d{{2,5}}(?![\w.:]))"
    return re.compile(f"{behind}|{before}", re.IGNORECASE)
