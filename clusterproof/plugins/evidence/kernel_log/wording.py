"""What the checks of the kernel log have in common: current lines, how often and when they occurred, and lost lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from clusterproof.plugins.catalog.log_forms import LogForm
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any, Protocol, TypeVar
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, fail_if, incomplete, part
from clusterproof.plugins.evidence.field import reading_of, readings, require
from clusterproof.plugins.evidence.kernel_log.conditions import Condition, conditions
from clusterproof.plugins.evidence.kernel_log.subjects import DRIVERS_NUMBER
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S
from clusterproof.plugins.evidence.network.facts import OFF

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

FILE_SERVERS, PROCESSES = "file_servers", "processes"  # classes of lines that are removed from an answer
RECORDS_LOST = "part of the kernel log was overwritten"  # the cause of what is incomplete then
TOO_LATE = "--since is later than the node's clock"  # likewise
MOUNTED, SWITCHED_ON = "mounted", "switched on"  # what a form requires
ON_THE_BUS = ("gpu", "pcie")  # scopes whose devices are named by address
DAY_S = 86_400
MAX_NAMED = 6  # things of one kind in a message; the others are only counted


class LoggedEvent(Protocol):
    """An event with its time, and the number of lines that it stands for."""

    @property
    def time(self) -> float | None:
        """Seconds on the log's own clock."""

    @property
    def lines(self) -> int:
        """How many lines of the log."""


E = TypeVar("E", bound=LoggedEvent)


@record
class NamedGpu:
    """A GPU as NVML names it."""

    index: int
    uuid: str
    remap_is_due: bool

    @property
    def label(self) -> str:
        """`GPU 3, GPU-…`."""
        return f"GPU {self.index}, {self.uuid}" if self.uuid else f"GPU {self.index}"


@record
class LineFinding:
    """A finding from lines of one form about a device; `words` with how often and when."""

    device: str
    form: LogForm
    words: str
    fails: bool

    @property
    def line(self) -> str:
        """`nvme1: a command timed out (3 times, last at …)`; of a GPU a number of the driver's is called so."""
        whose = "the driver's " if DRIVERS_NUMBER.fullmatch(self.device) else ""
        return f"{whose}{self.device}: {self.words}" if self.device else self.words


def require_whole_log(node: Node, of: str = "") -> None:
    """Report that finding nothing proves nothing if relevant records are lost. Raises Incomplete.

    Lines of file servers, and those of processes, are removed from an answer apart from all others. No user can have
    the kernel's own lines left out: those with users' text have room of their own.
    """
    due = "of this boot" if node.since.is_boot else node.since.description
    if not node.since.is_boot and node.window_begins > node.boot.uptime_s:
        clock = when(node.boot.uptime_s, node)
        incomplete(f"nothing can be logged yet {due}: the node's clock is {clock}; expected an earlier time", TOO_LATE)
    separate = {FILE_SERVERS, PROCESSES} - {of}
    cut = sum(count for name, count in node.kernel_lines_cut.items() if name not in separate and of in ("", name))
    if cut:
        incomplete(
            f"{cut} lines of the kernel log were cut: the answer was longer than its connection carries; "
            f"expected all that was logged {due} (--ssm-output)"
        )
    if node.kernel_lines_uncounted:
        incomplete(
            f"{node.kernel_lines_uncounted} lines of the kernel log were left out, each unlike the others; "
            f"expected all that was logged {due}"
        )
    if node.kernel_log_is_unfinished:
        incomplete(
            f"the kernel log was not read to its end in time; expected all that was logged {due} (--probe-timeout)"
        )
    if node.kernel_log_is_cut:
        incomplete(f"{RECORDS_LOST}, and no journal has it; expected all that was logged {due}", cause=RECORDS_LOST)


def line_findings(node: Node, check: str) -> tuple[tuple[LineFinding, ...], list[Incomplete | NotApplicable]]:
    """What the log shows of what a check evaluates, of each form and device; and why some could not be evaluated.

    Lines that only count if they are frequent are counted per day, for which the uptime must be known. Raises
    Incomplete.
    """
    unread: list[Incomplete | NotApplicable] = []

    def too_many(rate: str, lines: int) -> bool:
        a_day = node.threshold(rate)
        try:
            return lines >= a_day and lines >= a_day * logged_days(node)
        except (Incomplete, NotApplicable) as why:
            unread.append(why)
            return False

    held = conditions(node.kernel_events, check, too_many)
    gpus = gpus_by_address(node) if any(condition.form.scope in ON_THE_BUS for condition in held) else {}
    every = (
        LineFinding(
            gpus[condition.device].label if condition.device in gpus else condition.device,
            condition.form,
            joined(with_counts(condition.events, lambda event: event.words, node)),
            condition.form.verdict == "fail" and (condition.form.needs != MOUNTED or condition.device in mounted(node)),
        )
        for condition in held
        if not _is_switched_off(condition, node, too_many)
    )
    return tuple(every), unread


def _is_switched_off(condition: Condition, node: Node, too_many: Callable[[str, int], bool]) -> bool:
    """Whether a link is down because somebody switched its interface off, and was not lost often before."""
    if condition.form.needs != SWITCHED_ON or too_many(condition.form.rate, total(condition.events)):
        return False
    interfaces = reading_of(node, "interfaces", ())
    links = [readings(interface, "name", "link")[0] for interface in interfaces]
    return any(link.get("link") == OFF and link.get("name") == condition.device for link in links)


def report(node: Node, check: str, expected: str) -> None:
    """Say what the log shows of what a check evaluates, each with its form's verdict and action, and go on."""
    findings, unread = line_findings(node, check)
    by_action: dict[tuple[bool, str], list[str]] = {}
    for finding in findings:
        by_action.setdefault((finding.fails, finding.form.action if finding.fails else ""), []).append(finding.line)
    for (fails, action), lines in by_action.items():
        message = f"{joined(lines)}; expected {expected}"
        if fails:
            fail_by_log(node, lines, message, action)
        else:
            concern_if(lines, message)
    with part:
        require(unread)


def fail_by_log(node: Node, seen: object, message: str, action: str = "") -> None:
    """A fail if something was found; a concern if users can write anything into the log."""
    if node.users_write_the_log:
        concern_if(seen, message)
    else:
        fail_if(seen, message, action)


def logged_days(node: Node) -> float:
    """How many days of the log count, at least one. Raises Incomplete."""
    return max((node.boot.uptime_s - max(node.window_begins, 0.0)) / DAY_S, 1.0)


def mounted(node: Node) -> set[str]:
    """The kernel's names of mounted devices, as far as the mounts and the NVMe disks show them."""
    try:
        every = [readings(mount, "path", "source")[0] for mount in node.mounts]
    except Incomplete:
        return set()
    sources = [(row.get("path", ""), row["source"].removeprefix("/dev/")) for row in every if "source" in row]
    names, source_of = {source for _, source in sources}, dict(sources)
    for disk in _nvme_disks(node):
        parts = {disk["name"], *disk["used_by"]}
        if not {source_of[path] for path in disk["mounted"] if path in source_of} <= parts:
            names |= parts  # one is mounted under another name: /dev/root, /dev/mapper/…
    return names


def _nvme_disks(node: Node) -> list[Mapping[str, Any]]:
    """The name of each NVMe disk, what is built on it, and where any of that is mounted, as far as all is known."""
    controllers = reading_of(node, "nvme_controllers", ())
    disks = [disk for controller in controllers for disk in reading_of(controller, "disks", ())]
    rows = [readings(disk, "name", "used_by", "mounted") for disk in disks]
    return [reading for reading, unread in rows if not unread]


def total(events: Iterable[LoggedEvent]) -> int:
    """How many lines of the log the events stand for."""
    return sum(event.lines for event in events)


def how_often(events: Iterable[LoggedEvent], node: Node) -> str:
    """`3 times, last at 2026-03-01 08:00:00 UTC`; `at …` if it was only once."""
    events = tuple(events)
    count = total(events)
    last = max((event.time for event in events if event.time is not None), default=None)
    at = "" if last is None else when(last, node)
    if count == 1:
        return at or "once"
    return f"{count} times, last {at}" if at else f"{count} times"


def when(seconds: float, node: Node) -> str:
    """A moment of the kernel log by the log's or the node's own clock; otherwise its distance from boot."""
    from datetime import datetime, timezone  # imported here, as most logs have no findings

    is_dated = seconds >= CALENDAR_S
    try:
        moment = datetime.fromtimestamp(seconds if is_dated else node.boot.booted + seconds, timezone.utc)
    except (Incomplete, NotApplicable):
        return f"{seconds:.0f} s after boot"
    except (OverflowError, ValueError, OSError):
        return "at an invalid time" if is_dated else f"{seconds:.0f} s after boot"
    return f"at {moment:%Y-%m-%d %H:%M:%S} UTC"


def with_counts(events: Iterable[E], wording: Callable[[E], str], node: Node) -> list[str]:
    """Events with the same words in one: in these words, how often and when."""
    return [f"{what} ({how_often(group, node)})" for what, group in grouped(events, wording).items()]


def grouped(events: Iterable[E], wording: Callable[[E], str]) -> dict[str, list[E]]:
    """Events by the words that they have in common."""
    groups: dict[str, list[E]] = {}
    for event in events:
        groups.setdefault(wording(event), []).append(event)
    return groups


def joined(texts: Iterable[str]) -> str:
    """The words in one line, the first few of many."""
    texts = list(texts)
    more = [f"and {len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    return "; ".join([*texts[:MAX_NAMED], *more])


def gpus_by_address(node: Node) -> Mapping[str, NamedGpu]:
    """The GPUs whose PCI address is known, by address."""
    named: dict[str, NamedGpu] = {}
    for gpu in reading_of(node, "gpus", ()):
        reading, _ = readings(gpu, "pci", "uuid", "remap_pending", "remap_failed")
        if "pci" in reading:
            is_due = bool(reading.get("remap_pending") or reading.get("remap_failed"))
            named[reading["pci"]] = NamedGpu(gpu.index, reading.get("uuid", ""), is_due)
    return named
