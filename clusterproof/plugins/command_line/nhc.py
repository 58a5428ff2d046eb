"""`clusterproof init --from-nhc FILE`: maps each line of an nhc.conf to checks of the suite, and to a policy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import fill

from clusterproof.plugins.catalog.node import needed_services
from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.opened import read_whole
from clusterproof.plugins.core.record import record

MAX_BYTES = 1_000_000
MAX_LINE = 10_000  # characters: splitting a line into words takes quadratic time
EVERYWHERE = "*"
LINE = re.compile(r"^(\S+)\s*\|\|\s*(\S.*)$")
VARIABLE = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=(.*)$")
SIZE = re.compile(r"^(\d{1,12})([kmgtpe]?)b?$", re.IGNORECASE)
NUMBER = re.compile(r"\d{1,9}", re.ASCII)
PERCENT = re.compile(r"^(\d{1,3})%$")
INDENT = " " * 6
KIB_PER_GIB = 1024**2
# Mounts that every node has anyway.
OF_THE_KERNEL = ("/", "/dev", "/proc", "/sys", "/run")
OF_SERVICES = ("check_ps_service", "check_ps_daemon")
NOT_NEEDED = "a unit of systemd's that fails is a concern (host.services); whether this one runs is not looked at"
VARIABLES = {"MCELOG_MAX_CORRECTED_RATE": "kernel_log.corrected_per_day"}

Policy = dict[str, dict[str, object]]


@record
class Replacement:
    """What replaces a check of NHC: our checks, if any; how they differ, or why there are none."""

    name: str
    source: str
    note: str
    checks: tuple[str, ...] = ()
    policy: str = ""  # the key of SETTINGS that turns its arguments into a policy


@record
class NhcLine:
    """A rule of an nhc.conf: `target || check words`; other lines have no target."""

    number: int
    target: str
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """NHC's check, or the command that it runs."""
        return self.command[0] if self.command else ""


@cache
def replacements() -> Mapping[str, Replacement]:
    """Every row of nhc.toml by NHC's name of the check. Raises CatalogError."""
    return table(Replacement, "nhc.toml", "check", key="name")


def read_nhc(path: Path) -> tuple[NhcLine, ...]:
    """The lines of an nhc.conf. Raises OSError; ValueError if it is not text, too long, or not NHC's format."""
    try:
        text = read_whole(path, MAX_BYTES).decode()
    except UnicodeDecodeError as problem:
        raise ValueError(f"byte {problem.start} is not UTF-8") from None
    rows = [(number, row.strip()) for number, row in enumerate(text.splitlines(), 1)]
    long = next((number for number, row in rows if len(row) > MAX_LINE), 0)
    if long:
        raise ValueError(f"has more than {MAX_LINE:,} characters in line {long}; expected an nhc.conf")
    lines = tuple(_line(number, row) for number, row in rows if row and not row.startswith("#"))
    if not any(line.target for line in lines):
        raise ValueError("has no line such as: * || check_fs_mount_rw -f /")
    return lines


def _line(number: int, row: str) -> NhcLine:
    match = LINE.match(row)
    return NhcLine(number, match[1], tuple(_split(match[2]))) if match else NhcLine(number, "", tuple(_split(row)))


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # a quote that continues on the next line
        return command.split()


def comparison(lines: Iterable[NhcLine]) -> Iterator[str]:
    """For each line of the file: its location, what it runs, and our equivalent."""
    for line in lines:
        shown_command = " ".join(line.command)
        yield f"{line.number:>4}  {shown_command if shown_command.isprintable() else ascii(shown_command):.90}\n"
        yield f"{fill(_meaning(line), 100, initial_indent=INDENT, subsequent_indent=INDENT)}\n"


def _meaning(line: NhcLine) -> str:
    setting, row = VARIABLE.match(" ".join(line.command)), replacements().get(line.name)
    if not line.target:
        return "NOT READ: expected TARGET || CHECK"
    if setting:
        return f"the threshold {VARIABLES[setting[1]]}" if setting[1] in VARIABLES else "a setting of NHC itself"
    if row is None:
        return "NOT COVERED: not known as a check of NHC's; a check of your own can say it (docs/extend.md)"
    if not is_covered(line):
        return f"NOT COVERED: {row.note if not row.checks else NOT_NEEDED}"
    only = "" if line.target == EVERYWHERE else f" (there only on {line.target!a:.60}: here on every node)"
    return f"{', '.join(row.checks)}{f': {row.note}' if row.note else ''}{only}"


def is_covered(line: NhcLine) -> bool:
    """Whether a check covers what this line asks for; a setting asks for nothing."""
    if not line.target or VARIABLE.match(" ".join(line.command)):
        return bool(line.target)
    row = replacements().get(line.name)
    if row and line.name in OF_SERVICES:
        return bool(needed_services().keys() & {*line.command[1:]})
    return bool(row and row.checks)


def policy_of(lines: Iterable[NhcLine]) -> str:
    """The text of a clusterproof.toml for the lines that apply to every node, as far as a policy can express them."""
    policy: Policy = {}
    for line in {_key(line): line for line in lines if line.target == EVERYWHERE}.values():
        setting = VARIABLE.match(" ".join(line.command))
        if setting and setting[1] in VARIABLES and NUMBER.fullmatch(setting[2]):
            _threshold(policy, VARIABLES[setting[1]], int(setting[2]))
        row = replacements().get(line.name)
        if row and row.policy:
            SETTINGS[row.policy](policy, line.command[1:])
    return "\n".join(_toml(name, rows) for name, rows in policy.items())


def _key(line: NhcLine) -> tuple[str, ...]:
    """What lines that ask for the same share: an InfiniBand device, regardless of port and rate."""
    is_of_device = line.name == "check_hw_ib" and len(line.command) > 2
    return (line.name, line.command[2].partition(":")[0]) if is_of_device else line.command


def _toml(name: str, rows: Mapping[str, object]) -> str:
    of_toml = {key: list(value) if isinstance(value, dict) else value for key, value in rows.items()}
    return f"[{name}]\n" + "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in of_toml.items()
    )


def _threshold(policy: Policy, name: str, value: float) -> None:
    group, _, key = name.partition(".")
    policy.setdefault(f"thresholds.{group}", {})[key] = value


def _mounts(policy: Policy, arguments: tuple[str, ...]) -> None:
    named = [path for flag, path in pairwise(arguments) if flag in ("-f", "-F")]
    paths = named or [argument for argument in arguments[:1] if not argument.startswith("-")]
    new = [path for path in paths if path.startswith("/") and path.isprintable() and not _is_of_the_kernel(path)]
    if new:
        wanted = policy.setdefault("mounts", {}).setdefault("expected", {})
        assert isinstance(wanted, dict)
        wanted |= dict.fromkeys(new)


def _is_of_the_kernel(path: str) -> bool:
    return path in OF_THE_KERNEL or path.startswith(tuple(f"{folder}/" for folder in OF_THE_KERNEL[1:]))


def _used(policy: Policy, arguments: tuple[str, ...]) -> None:
    percent = PERCENT.match(arguments[1]) if len(arguments) > 1 and arguments[0] == "/" else None
    if percent and int(percent[1]) <= 100:
        _threshold(policy, "root.used_fail_percent", int(percent[1]))


def _free(policy: Policy, arguments: tuple[str, ...]) -> None:
    percent = PERCENT.match(arguments[1]) if len(arguments) > 1 and arguments[0] == "/" else None
    if percent and int(percent[1]) <= 100:
        _threshold(policy, "root.used_fail_percent", 100 - int(percent[1]))


def _swap(policy: Policy, arguments: tuple[str, ...]) -> None:
    size_kib = _kib(arguments[1]) if len(arguments) > 1 else None
    if size_kib:
        _threshold(policy, "memory.swap_concern_gib", round(size_kib / KIB_PER_GIB, 3))


def _kib(size: str) -> int | None:
    """A size as NHC writes it, in bytes or, without a unit, as the bare number; None if it is none."""
    read = SIZE.match(size)
    if read is None:
        return None
    exponent = "kmgtpe".find(read[2].lower()) if read[2] else 0
    return int(read[1]) << 10 * exponent


def _gpus(policy: Policy, arguments: tuple[str, ...]) -> None:
    if arguments and NUMBER.fullmatch(arguments[0]) and len(arguments[0]) < 4:
        policy.setdefault("expect", {})["gpus"] = int(arguments[0])


def _ib(policy: Policy, arguments: tuple[str, ...]) -> None:
    """Count one more named device: `check_hw_ib 400 mlx5_ib0:1`."""
    if len(arguments) > 1:
        expect = policy.setdefault("expect", {})
        expect["ib"] = int(str(expect.get("ib", 0))) + 1


SETTINGS: Mapping[str, Callable[[Policy, tuple[str, ...]], None]] = {
    "mounts": _mounts,
    "used": _used,
    "free": _free,
    "swap": _swap,
    "gpus": _gpus,
    "ib": _ib,
}
