"""The current conditions in the kernel log: lines not ended by later ones, and those that occur too often."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusterproof.plugins.catalog.log_forms import LogForm, log_forms
from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.kernel_log.events_gpu import EVERY_GPU, RECOVERY_ACTION_CHANGED, Cleared, XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import Event, Logged
from clusterproof.plugins.evidence.kernel_log.line import pci_address


@record
class Condition:
    """Current lines of one form about one device."""

    form: LogForm
    device: str
    events: tuple[Logged, ...]


class _Lines:
    """The lines of one form about one device, and those that no later line has ended."""

    def __init__(self) -> None:
        self.every: list[Logged] = []
        self.left: list[Logged] = []


def conditions(events: Iterable[Event], check: str, too_many: Callable[[str, int], bool]) -> tuple[Condition, ...]:
    """What a check reports about the log: for each form and device the current lines, in the log's order.

    `too_many` says whether so many lines are more than a rate allows.
    """
    of: dict[tuple[str, str], _Lines] = {}
    seen: list[Logged] = []  # forms that must be there for others to count
    due: set[str] = set()  # GPUs for which the driver says that a recovery action is due
    for event in events:
        clearing, names = _over(event)
        are_all_well = _are_all_well(event, due)
        for (name, _), lines in of.items():
            form = log_forms()[name]
            if clearing in form.cleared_by:
                lines.left = [
                    line
                    for line in lines.left
                    if not (_is_same(line.names, names) or (are_all_well and _may_be_any_gpus(form, line)))
                ]
        if not isinstance(event, Logged):
            continue
        form = log_forms()[event.form]
        if not form.check:
            seen.append(event)
        elif form.check == check and _counts(form, event, seen):
            lines = of.setdefault((event.form, event.device), _Lines())
            lines.every.append(event)
            lines.left.append(event)
    by_form = ((log_forms()[name], device, lines) for (name, device), lines in of.items())
    return tuple(
        Condition(form, device, held) for form, device, lines in by_form if (held := _current(form, lines, too_many))
    )


def _current(form: LogForm, lines: _Lines, too_many: Callable[[str, int], bool]) -> tuple[Logged, ...]:
    """The current lines: all if they occur too often, else those that nothing has ended."""
    if form.rate and too_many(form.rate, sum(line.lines for line in lines.every)):
        return tuple(lines.every)
    return tuple(lines.left) if form.cleared_by or not form.rate else ()


def _counts(form: LogForm, event: Logged, seen: Iterable[Logged]) -> bool:
    """Whether a line counts: whether the form that it requires was logged before for the same device."""
    return not form.after or any(
        earlier.form in form.after and _is_same(event.names, earlier.names) for earlier in seen
    )


def _are_all_well(event: Event, due: set[str]) -> bool:
    """Whether this was the last GPU with a recovery action due, of which the driver says that none is any more.

    `due` has those for which one is, up to now.
    """
    if isinstance(event, Cleared) and event.pci == EVERY_GPU:
        due.clear()
    if not isinstance(event, XidEvent) or event.code != RECOVERY_ACTION_CHANGED:
        return False
    (due.discard if event.is_recovered and event.pci else due.add)(event.pci)
    return not due


def _may_be_any_gpus(form: LogForm, line: Logged) -> bool:
    """Whether it is about a GPU, but does not say at which address."""
    return form.scope == "gpu" and not any(map(pci_address, line.names))


def _over(event: Event) -> tuple[str, tuple[str, ...] | None]:
    """The form that may end others, and its subject; None: everything."""
    if isinstance(event, Cleared):
        everything = None if event.pci == EVERY_GPU else (event.pci,)
        return ("" if event.is_partial else event.form), everything
    if isinstance(event, XidEvent) and event.is_recovered:
        return "gpu_added", (event.pci,)
    return (event.form, event.names) if isinstance(event, Logged) else ("", ())


def _is_same(names: tuple[str, ...], others: tuple[str, ...] | None) -> bool:
    """Whether two lines are about the same thing: they have a name in common, or neither has any."""
    if others is None or not (names or others):
        return True
    prefixes = tuple(other for other in others if other.endswith("-"))
    return any(name in others or (prefixes and name.startswith(prefixes)) for name in names)
