"""Values in nvidia-smi's words: the value itself, or why there is none; and the processes that it lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from clusterproof.plugins.evidence.parsing import is_error

Attributes = Mapping[str, str]  # what nvidia-smi printed of one GPU: by its path in the output, in small letters
Reader = Callable[[Attributes], object]  # a value, an error object, or None where there is none

_RATE = re.compile(r"\d{1,2}(?:\.\d{1,20})?(?:e-\d{1,3})?", re.ASCII | re.IGNORECASE)

# nvidia-smi's words for a value that NVML did not give it, and NVML's own name for the reason.
ERRORS = {
    "n/a": "NOT_SUPPORTED",
    "not supported": "NOT_SUPPORTED",
    "not available": "NOT_SUPPORTED",
    "requested functionality has been deprecated": "NOT_SUPPORTED",
    "function not found": "FUNCTION_NOT_FOUND",
    "gpu is lost": "GPU_IS_LOST",
    "gpu requires reset": "RESET_REQUIRED",
    "gpu requires restart": "RESET_REQUIRED",
    "unknown error": "UNKNOWN",
    "err!": "UNKNOWN",
    "error": "UNKNOWN",
    "insufficient permissions": "NO_PERMISSION",
    "no permission": "NO_PERMISSION",
    "permission denied": "NO_PERMISSION",
    "not found": "NOT_FOUND",
    "timeout": "TIMEOUT",
    "timed out": "TIMEOUT",
    "interrupt request issue": "IRQ_ISSUE",
    "corrupted inforom": "CORRUPTED_INFOROM",
    "invalid argument": "INVALID_ARGUMENT",
    "uninitialized": "UNINITIALIZED",
    "driver not loaded": "DRIVER_NOT_LOADED",
    "driver/library version mismatch": "LIB_RM_VERSION_MISMATCH",
    "gpu access blocked by the operating system": "OPERATING_SYSTEM",
    "the operating system has blocked the request": "OPERATING_SYSTEM",
    "insufficient external power": "INSUFFICIENT_POWER",
    "no data": "NO_DATA",
    "argument version mismatch": "ARGUMENT_VERSION_MISMATCH",
}

_ADDRESS = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"([-+]?\d{1,18})(?:\.(\d{1,9}))?", re.ASCII)
MAX_PROCESSES = 256  # of one GPU, as in the probe
_KEYS = {
    "process id": "pid",
    "process id/type": "type",
    "process id/name": "name",
    "process id/used gpu memory": "memory",
    "type": "type",
    "name": "name",
    "used gpu memory": "memory",
    "process_info/pid": "pid",
    "process_info/type": "type",
    "process_info/process_name": "name",
    "process_info/used_memory": "memory",
}


def error(word: str) -> dict[str, str] | None:
    """The error object of a word that stands for a value which could not be read, else None."""
    name = ERRORS.get(word.strip("[]() .").lower())
    return {"error": name, "text": word.strip()[:200]} if name else None


def bit_error_rate(word: str) -> float | None:
    """A rate such as `15e-255`, which stands for no error; None where the word is none."""
    return float(word) if _RATE.fullmatch(word) else None


def unsupported(why: str = "nvidia-smi does not print it here") -> dict[str, str]:
    """The error object of a value that this driver, or this GPU, does not have."""
    return {"error": "NOT_SUPPORTED", "text": why}


def not_understood(word: str) -> dict[str, str]:
    """The error object of a word that is none of those known."""
    return {"error": "NOT_UNDERSTOOD", "text": f"nvidia-smi says {word[:100]!r}"}


def value(decode: Callable[[str], object], *paths: str, unit: str = "") -> Reader:
    """What stands at the first of these paths that was printed; an error where its whole section is one.

    A number without the unit that nvidia-smi prints with it, other than in CSV, was cut.
    """
    sections = tuple(map(_sections, paths))
    every = frozenset(section for above in sections for section in above)

    def read(attributes: Attributes) -> object:
        for path in paths:
            if path in attributes:
                word = attributes[path]
                break
        else:
            if attributes.keys().isdisjoint(every):
                return None
            return next((problem for above in sections if (problem := _section_error(attributes, above))), None)
        problem = error(word)
        if problem:
            return problem
        is_cut = "/" in path and unit not in word
        decoded = None if is_cut else decode(word.strip())
        return not_understood(word) if decoded is None and word.strip() else decoded

    return read


def total(*readers: Reader) -> Reader:
    """The sum of numbers that are printed one by one; what was counted outranks what could not be read."""

    def read(attributes: Attributes) -> object:
        values = [reader(attributes) for reader in readers]
        counted = sum(count for count in values if isinstance(count, int))
        errors = [problem for problem in values if is_error(problem)]
        if counted or all(isinstance(count, int) for count in values):
            return counted
        return errors[0] if errors else None

    return read


def first(*readers: Reader) -> Reader:
    """The first value that is there; else the first error; else None."""

    def read(attributes: Attributes) -> object:
        values = [reading for reader in readers if (reading := reader(attributes)) is not None]
        return next((reading for reading in values if not is_error(reading)), values[0] if values else None)

    return read


def between(reader: Reader, before: Iterable[str], after: Iterable[str]) -> Reader:
    """A value that this driver does not have where what stands before and behind it is printed, and it is not."""
    before, after = tuple(before), tuple(after)

    def read(attributes: Attributes) -> object:
        reading = reader(attributes)
        if reading is None and _has_any(attributes, before) and _has_any(attributes, after):
            return unsupported()
        return reading

    return read


def _has_any(attributes: Attributes, starts: tuple[str, ...]) -> bool:
    return any(path.startswith(starts) for path in attributes)


def _sections(path: str) -> tuple[str, ...]:
    """The sections that a path is in, the innermost first."""
    section = path.rpartition("/")[0]
    return (section, *_sections(section)) if section else ()


def _section_error(attributes: Attributes, sections: Iterable[str]) -> dict[str, str] | None:
    """The error that stands in the place of the innermost section that was printed: `Remapped Rows : N/A`."""
    return next((error(attributes[section]) for section in sections if section in attributes), None)


# What a word says. None where it is not understood.


def integer(word: str) -> int | None:
    """`0`, `16x`, `2560 bank(s)`, `69 %`, `81559 MiB`: the whole number that it begins with."""
    match = _NUMBER.match(word.replace(",", ""))
    return int(match[1]) if match and match[2] is None else None


def number(word: str) -> float | None:
    """`59 C`, `700.00 W`: the number that it begins with."""
    match = _NUMBER.match(word.replace(",", ""))
    return float(match[0]) if match else None


def width(word: str) -> int | None:
    """`16x`, and `16` in CSV."""
    match = re.fullmatch(r"(\d{1,3})x?", word)
    return int(match[1]) if match else None


def text(word: str) -> str | None:
    """Text, cut."""
    return word[:200] or None


def mask(word: str) -> int | None:
    """`0x0000000000000004`."""
    return int(word, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word) else None


def one_of(meanings: Mapping[str, object]) -> Callable[[str], object]:
    """A word of a known list, in small letters."""
    return lambda word: meanings.get(word.lower())


flag = one_of(
    {"yes": True, "enabled": True, "on": True, "true": True, "1": True, "active": True}
    | {"no": False, "disabled": False, "off": False, "false": False, "0": False, "not active": False}
)


def address(word: str) -> str | None:
    """`00000000:53:00.0` as sysfs writes it: `0000:53:00.0`."""
    match = _ADDRESS.fullmatch(word.strip())
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower() if match else None


def cuda(word: str) -> int | None:
    """`13.0` as NVML's number: 13000."""
    version = re.fullmatch(r"(\d{1,3})\.(\d{1,2})", word)
    return int(version[1]) * 1000 + int(version[2]) * 10 if version else None


def processes(pairs: Iterable[tuple[str, str]]) -> object:
    """The compute processes of a GPU, an error, or None where its output does not mention processes."""
    rows: list[dict[str, str]] = []
    is_listed = False
    for path, word in pairs:
        if path == "processes":  # `Processes : None`, or an error in the place of the list
            if error(word):
                return error(word)
            is_listed = is_listed or word.strip().lower() in ("none", "")
        if not path.startswith("processes/"):
            continue
        key = _KEYS.get(path.removeprefix("processes/"))
        if key == "pid":
            rows.append({})
        if key and rows:
            rows[-1][key] = word
    if not is_listed and not rows:
        return None
    return [process(row.get("pid", ""), row.get("name", ""), row.get("memory", "")) for row in rows if _computes(row)]


def process(pid: str, name: str, memory: str) -> dict[str, object]:
    """A process as the probe reports it: by its program's name; nvidia-smi does not know its control group."""
    program = re.split(r"\s", name.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]
    is_known = error(name) is None
    return {
        "pid": integer(pid) or 0,
        "memory_mib": integer(memory) if memory and not error(memory) else None,
        "name": program[:100] if is_known else "",
        "cgroup": "",
    }


def _computes(row: dict[str, str]) -> bool:
    """Whether a process uses the GPU for more than to show a picture: type C, C+G, M+C; not G."""
    return "c" in row.get("type", "C").lower()
