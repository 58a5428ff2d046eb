"""Splits a line of the kernel log, and finds the first form of the catalogue that matches."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog.log_forms import LogForm, log_forms, patterns
from clusterproof.plugins.core.typed import TypeAlias

# The kernel's first line, and journalctl's between two boots; longer than a process's name can be.
BOOTED = r"Linux version \d{1,3}\.\d|-- (?:Re)?boot(?: [0-9a-f]{32})? --\s*\Z"
IGNORING_CASE = re.IGNORECASE | re.ASCII  # ASCII: a digit of another script is not a number of the kernel's

ADDRESSES = 4_096  # cached lines of nodes' answers: most are the same on all
MESSAGES = 2_048  # the same for the kernel's own text, which most nodes' logs have in common: that of the start
ADDRESS = r"(?:[0-9a-f]{1,8}:)?[0-9a-f]{1,2}:[0-9a-f]{1,2}(?:\.[0-7])?"

# A day or a month in the language of the log: `Mär`, `févr.`, `11月`.
WORD = r"[^\s\[\]:]{1,8}"
SYSLOG_TIME = rf"{WORD} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d{{1,9}})?"
ISO_DAY = r"\d{4}-\d\d-\d\d"
ZONE = r"Z|[+-]\d\d:?\d\d|(?-i:[A-Z]{2,5})"

# A line of another program has its name there (`python[77]: NVRM: Xid …`, in /dev/kmsg a priority of 8
# and up): it is not unwrapped, and so never begins with the kernel's words.
_PREFIX = Pattern(
    r"\s+"
    r"|<[0-7]>"
    r"|[0-7],\d{1,12},(?P<usec>\d{1,18}),[^;\s]{1,80};"
    r"|kern\s{0,4}:\s?\w{1,8}\s{0,4}:(?=\s)"
    r"|\[\s{0,12}(?P<seconds>\d{1,12}\.\d{1,9})(?: <\s{0,12}\d{1,12}\.\d{6}>)?\]"
    r"|\[\s{0,12}[+<]\s{0,12}\d{1,12}\.\d{6}>?\]"
    r"|\[[A-Z][a-z]{2}[ \d]\d \d\d:\d\d\](?=\s)"
    r"|\[\s{0,12}[TC]\d{1,10}\]"
    r"|\[\.\.\.\]"
    rf"|\[(?P<date>{WORD} {SYSLOG_TIME} \d{{4}})\]"
    rf"|\[?(?:{WORD} )?(?P<iso>{ISO_DAY}[T ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?)(?: ?(?P<zone>{ZONE}))?\]?:?(?=\s)"
    rf"|(?P<syslog>{SYSLOG_TIME})(?=\s)"
    r"|(?P<unix>\d{9,11}\.\d{6})(?=\s)",
    IGNORING_CASE,
)
_ADDRESS = Pattern(ADDRESS, IGNORING_CASE)

# These records about a process begin with the name that the process has given itself, of up to
# 15 bytes (Linux, TASK_COMM_LEN): arch/x86/mm/fault.c, arch/*/kernel/traps.c and signal.c, mm/page_alloc.c,
# mm/oom_kill.c, mm/vmalloc.c, fs/drop_caches.c, fs/hugetlbfs/inode.c.
_NAME_OF_PROCESS = Pattern(
    r".{0,15}?(?:\[\d{1,10}\]:? | ?\(\d{1,10}\):? | invoked oom-killer: |: page allocation failure|: vmalloc )",
    re.DOTALL,
)
_KERNEL = Pattern(r"kernel:(?=\s)", IGNORING_CASE)  # with a number it is a user's: `logger -t kernel`
_HOST_KERNEL = Pattern(r"\S{1,255} kernel:(?=\s)", IGNORING_CASE)
NAMED = "a process's name"
OF_PROCESS = ("(?P<process>", "(?:traps: )?(?P<process>")  # beginnings of forms that begin with a process's name
BEGINNING = 4  # letters by which forms that begin with plain text are found
_BEGINS = Pattern(rf"([A-Za-z][\w :/-]{{{BEGINNING - 1}}})(?![?*+{{])")

Try: TypeAlias = tuple[str, str, Pattern]  # text that a line must contain, in small letters; a form's name; the form

_NOT_PLAIN = (  # parts of a pattern that stand for no fixed text, from the inside out
    Pattern(r"\\."),
    Pattern(r"\[\^?\]?[^\]]*\]"),
    Pattern(r"\([^()]*\)"),
    Pattern(r".(?:[?*]|\{[^{}]*\})|[.+^$]", re.DOTALL),
)
_END = "\n"  # plain text


@lru_cache(MESSAGES)
def unwrap(line: str) -> tuple[float | None, str]:
    """A line's time, in seconds on its log's own clock, and the kernel's message in it."""
    time: float | None = None
    at = 0
    stamped = False
    for _ in range(12):
        prefix = _PREFIX.match(line, at)
        if prefix:
            time = _time(prefix, time)
            stamped = stamped or bool(prefix.lastgroup)
        else:
            prefix = _KERNEL.match(line, at) or (_HOST_KERNEL.match(line, at) if stamped else None)
        if not prefix:
            break
        at = prefix.end()
    return time, line[at:]


@lru_cache(MESSAGES)
def begins_with_a_name(message: str) -> bool:
    """Whether the record begins with a process's name, which its user may choose: `EDAC MC0: 1 UE[7]: segfault`."""
    return bool(_NAME_OF_PROCESS.match(message))


@lru_cache(ADDRESSES)
def pci_address(address: str) -> str:
    """A PCI address in any notation of driver and NVML, as sysfs writes it; empty if it is none."""
    if not _ADDRESS.fullmatch(address.replace("0x", "")):
        return ""
    prefix, _, function = address.lower().partition(".")
    domain, bus, device = [int(part, 16) for part in f"0:{prefix}".split(":")[-3:]]
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function or 0}"


def _time(match: re.Match[str], before: float | None) -> float | None:
    if match["usec"]:
        return int(match["usec"]) / 1e6
    if match["seconds"]:
        return float(match["seconds"])
    if match["unix"]:
        return float(match["unix"])
    date, zone = match["date"] or match["iso"], match["zone"] or "Z"
    return _epoch(date.replace("T", " ") if match["iso"] else date, "Z" if zone == "UTC" else zone) if date else before


def _epoch(date: str, zone: str) -> float | None:
    """Seconds since 1970; a time without a zone is taken as UTC, which nodes use."""
    from datetime import datetime

    moment, _, fraction = date.replace(",", ".").partition(".")
    form = "%Y-%m-%d %H:%M:%S" if moment[0].isdecimal() else "%a %b %d %H:%M:%S %Y"
    try:
        seconds = datetime.strptime(f"{moment} {zone}", f"{form} %z").timestamp()
    except ValueError:
        return None
    return seconds + float(f"0.{fraction or 0}")


@lru_cache(MESSAGES)
def form_of(message: str) -> tuple[LogForm, re.Match[str]] | None:
    """The first form that matches the kernel's message, and the match; a process's name does not count as such."""
    small = message.lower()
    for part, name, pattern in _tries(NAMED if begins_with_a_name(message) else small[:BEGINNING]):
        if part in small and (match := pattern.match(message)):
            return log_forms()[name], match
    return None


@lru_cache(MESSAGES)
def _tries(beginning: str) -> list[Try]:
    """The forms that a line with this beginning may match, in their order."""
    if beginning == NAMED:
        return [_try(name) for name, text in patterns().items() if text.startswith(OF_PROCESS)]
    return [_try(name) for name, letters in _beginnings().items() if letters in ("", beginning)]


@cache
def _beginnings() -> dict[str, str]:
    """The first letters of a match of each form, in small letters; empty if they are not plain text."""
    begins = {name: _BEGINS.match(text) for name, text in patterns().items()}
    return {name: match[1].lower() if match else "" for name, match in begins.items()}


@cache
def _try(name: str) -> Try:
    text = patterns()[name]
    return max(_plain(text).split(_END), key=len), name, Pattern(text, IGNORING_CASE)


def _plain(pattern: str) -> str:
    """The plain text in a pattern, in small letters, with a separator wherever it is interrupted."""
    text = pattern.lower()
    for what in _NOT_PLAIN:
        while (shorter := what.sub(_END, text)) != text:
            text = shorter
    return text
