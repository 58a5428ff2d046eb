"""The forms of the lines that tell of the host, and what is made of each."""

from __future__ import annotations

import re
from dataclasses import replace

from clusterproof.plugins.catalog.log_words import efa_error
from clusterproof.plugins.facts.kernel_hardware import HARDWARE_FORMS, LONGEST_WORDS, Form, Make, form
from clusterproof.plugins.facts.kernel_host import (
    AllocationFailure,
    EfaMessage,
    FileServer,
    HostEvent,
    HungTask,
    Lockup,
    OomKill,
    Segfault,
)
from clusterproof.plugins.facts.kernel_line import ADDRESS, IGNORING_CASE, pci_address


def host_event(message: str, time: float | None) -> HostEvent | None:
    """The event that the kernel's own words tell, if any."""
    small = message.lower()
    for hint, pattern, make in _FORMS:
        if hint in small and (found := pattern.match(message)):
            return make(found, time)
    return None


class MemoryGroups:
    """Names the control group of which a process was killed: the kernel tells that in the line before."""

    def __init__(self) -> None:
        self._group = ("", "")

    def named(self, message: str, event: HostEvent | None) -> HostEvent | None:
        """The event, with its control group where it is a kill within one and the group was told."""
        if isinstance(event, OomKill):
            group, pid = self._group
            return replace(event, group=group) if event.group and pid == str(event.pid) else event
        if found := _OOM_GROUP.match(message):
            self._group = (found[1], found[2])
        return event


def _killed(found: re.Match[str], time: float | None) -> OomKill:
    return OomKill(found[3], int(found[2]), "?" if found[1] else "", time)


def _page_allocation(found: re.Match[str], time: float | None) -> AllocationFailure:
    return AllocationFailure(f"page allocation failure of {found[1]}", int(found[2]), time)


def _fork(found: re.Match[str], time: float | None) -> AllocationFailure:
    return AllocationFailure(f"fork rejected by pids controller in {found[1] or 'a control group'}", None, time)


def _no_memory(found: re.Match[str], time: float | None) -> AllocationFailure:
    return AllocationFailure(found[0][:LONGEST_WORDS], None, time)


def _efa(found: re.Match[str], time: float | None) -> EfaMessage | None:
    told = found.groupdict()
    device, words = told["name"] or pci_address(told.get("address") or ""), told["words"]
    return EfaMessage(device, words.strip(), time) if efa_error(words) else None


def _segfault(found: re.Match[str], time: float | None) -> Segfault:
    return Segfault(found[1].strip(), int(found[2]), found[3] or "", time)


def _hung(found: re.Match[str], time: float | None) -> HungTask:
    return HungTask(found[1], int(found[2]), int(found[3]), time)


def _lockup(kind: str) -> Make:
    return lambda found, time: Lockup(kind, found[0].strip()[:LONGEST_WORDS], time)


def _server(is_back: bool, words: str) -> Make:
    return lambda found, time: FileServer(_target(found[1]), is_back, words, time)


def _unmounted(found: re.Match[str], time: float | None) -> FileServer:
    return FileServer(f"{found[1]}-", True, "unmounted", time)


def _target(name: str) -> str:
    """The target of a Lustre import (`fsx-OST0001-osc-ffff8a01`), which is the same after the next mount."""
    return re.sub(r"-(?:osc|mdc|lwp)-[0-9a-fx]{4,20}\Z", "", name, flags=IGNORING_CASE)


_OOM_GROUP = form(r"oom-kill:.{0,400}?,oom_memcg=([^,]{1,200}),.{0,400}?,pid=(\d{1,10})\b")
_LUSTRE = r"Lustre(?:Error)?: (?:[0-9a-f]{1,4}-[0-9a-f]{1,4}: )?([^\s:]{1,100}): "

# Small words that the line must hold, its form, and what is made of it. The first that fits counts.
_FORMS: tuple[Form, ...] = (
    (
        "out of memory",
        form(
            r"(Memory cgroup )?out of memory(?: \([^()]{1,40}\))?: Kill(?:ed)? process (\d{1,10}) \(([^()]{0,64})\)",
        ),
        _killed,
    ),
    (
        "page allocation failure",
        form(r"(.{1,64}?): page allocation failure[.:,] {0,2}order:(\d{1,3})"),
        _page_allocation,
    ),
    (
        "fork rejected",
        form(r"cgroup: fork rejected by pids controller(?: in (\S{1,200}))?"),
        _fork,
    ),
    ("cannot allocate memory", form(r".{0,300}cannot allocate memory"), _no_memory),
    *HARDWARE_FORMS,
    ("efa ", form(rf"efa (?P<address>{ADDRESS})(?: (?P<name>[\w-]{{1,64}}))?: (?P<words>.{{1,300}})"), _efa),
    ("infiniband ", form(r"infiniband (?P<name>(?:rdmap|efa_)\w{1,40}): (?P<words>.{1,300})"), _efa),
    (
        "segfault at",
        form(
            r"([^\[\]]{1,64})\[(\d{1,10})\]: segfault at [0-9a-f]{1,16} ip \S{1,18} sp \S{1,18} error [0-9a-f]{1,8}"
            r"(?: in ([^\[\]]{1,128})\[)?"
        ),
        _segfault,
    ),
    (
        "general protection",
        form(
            r"(?:traps: )?([^\[\]]{1,64})\[(\d{1,10})\]:? general protection(?: fault)? ip:\S{1,18}"
            r"(?: sp:\S{1,18})?(?: error:\S{1,8})?(?: in ([^\[\]]{1,128})\[)?"
        ),
        _segfault,
    ),
    (
        "for more than",
        form(r"INFO: task (.{1,64}):(\d{1,10}) blocked\b.{0,40}? for more than (\d{1,9}) seconds"),
        _hung,
    ),
    ("hard lockup", form(r".{0,60}(?:detected hard LOCKUP on cpu \d{1,6}|panic.{0,30}Hard LOCKUP)"), _lockup("hard")),
    (
        "soft lockup",
        form(r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#\d{1,6} stuck for \d{1,9}s!(?: \[.{1,80}\])?"),
        _lockup("soft"),
    ),
    ("workqueue lockup", form(r"BUG: workqueue lockup - pool.{0,80}"), _lockup("workqueue")),
    (
        "detected",
        form(r"(?:rcu: )?INFO: rcu\w{0,30} (?:self-)?detected (?:expedited )?stalls? on CPU.{0,60}"),
        _lockup("rcu"),
    ),
    ("evicted by", form(_LUSTRE + r"This client was evicted by "), _server(False, "evicted this client")),
    ("was lost", form(_LUSTRE + r"Connection to \S{1,100} \(at \S{1,100}\) was lost"), _server(False, "is lost")),
    ("connection restored", form(_LUSTRE + r"Connection restored to "), _server(True, "is back")),
    ("lustre: unmounted", form(r"Lustre: Unmounted (\S{1,60})-client\b"), _unmounted),
    (
        "not responding",
        form(r"nfs: server (\S{1,255}) not responding"),
        _server(False, "does not respond"),
    ),
    ("nfs: server", form(r"nfs: server (\S{1,255}) OK\b"), _server(True, "responds")),
)
