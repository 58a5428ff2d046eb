"""The forms of lines about the host, and the event made of each."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

from clusterproof.plugins.catalog.log_words import efa_error
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.kernel_log.events_host import (
    BOUND,
    AllocationFailure,
    EfaMessage,
    EfaStarted,
    FileServer,
    HostEvent,
    HungTask,
    Lockup,
    OomKill,
    Segfault,
)
from clusterproof.plugins.evidence.kernel_log.forms_devices import DEVICE_FORMS
from clusterproof.plugins.evidence.kernel_log.forms_hardware import HARDWARE_FORMS, LONGEST_WORDS, Form, Make, form
from clusterproof.plugins.evidence.kernel_log.line import ADDRESS, IGNORING_CASE, MESSAGES, pci_address


def host_event(message: str, time: float | None) -> HostEvent | None:
    """The event in the kernel's message, if any."""
    return _made(_kernel_fitting(message), time)


def process_event(message: str, time: float | None) -> HostEvent | None:
    """The event of a record that begins with a process's name, if any; the name is not the kernel's own text."""
    return _made(_process_fitting(message), time)


Fitting: TypeAlias = tuple[Make, re.Match[str]]  # what is made of the first form that a message fits


def _made(fitting: Fitting | None, time: float | None) -> HostEvent | None:
    return fitting[0](fitting[1], time) if fitting else None


@lru_cache(MESSAGES)
def _kernel_fitting(message: str) -> Fitting | None:
    return _first(_FORMS, message)


@lru_cache(MESSAGES)
def _process_fitting(message: str) -> Fitting | None:
    return _first(_OF_PROCESSES, message)


def _first(forms: tuple[Form, ...], message: str) -> Fitting | None:
    small = message.lower()
    for hint, pattern, make in forms:
        if hint in small and (found := pattern.match(message)):
            return make, found
    return None


_EFA_STARTED = "IB device registered"  # efa_main.c of Linux and of amzn-drivers


class MemoryGroups:
    """Names the group whose limit a process was killed for: the kernel logs it in the line before."""

    def __init__(self) -> None:
        self._limit = _NO_LIMIT

    def named(self, message: str, event: HostEvent | None) -> HostEvent | None:
        """The event; a kill with the group whose limit it was, where that was logged of the same process."""
        if isinstance(event, OomKill):
            constraint, group, pid = self._limit
            self._limit = _NO_LIMIT
            if event.group:
                return replace(event, group=group) if group and pid == str(event.pid) else event
            return replace(event, group=BOUND) if constraint in _BOUND and pid in ("", str(event.pid)) else event
        if found := _CONSTRAINT.match(message):
            group_found, pid_found = _OOM_GROUP.match(message), _OOM_PID.search(message)
            self._limit = (found[1], group_found[1] if group_found else "", pid_found[1] if pid_found else "")
        return event


def _killed(found: re.Match[str], time: float | None) -> OomKill:
    return OomKill(found[3], int(found[2]), "?" if found[1] else "", time)


def _page_allocation(found: re.Match[str], time: float | None) -> AllocationFailure:
    return AllocationFailure(f"page allocation failure of {found[1]}", int(found[2]), time)


def _fork(found: re.Match[str], time: float | None) -> AllocationFailure:
    return AllocationFailure(f"fork rejected by pids controller in {found[1] or 'a control group'}", None, time)


def _efa(found: re.Match[str], time: float | None) -> EfaMessage | EfaStarted | None:
    data = found.groupdict()
    address, words = pci_address(data.get("address") or ""), data["words"].strip()
    if words == _EFA_STARTED and address:
        return EfaStarted(address, time)
    return EfaMessage(data["name"] or address, words, time, address=address) if efa_error(words) else None


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


# The process's name and those of its control groups stand between, and are its user's to choose.
_CONSTRAINT = form(r"oom-kill:constraint=CONSTRAINT_(\w{1,20}),")
_OOM_GROUP = form(r"oom-kill:constraint=CONSTRAINT_MEMCG,.{0,400}?,oom_memcg=([^,]{1,200}),")
_OOM_PID = form(r",pid=(\d{1,10}),uid=\d{1,10}\s*\Z")  # not there in a line that was cut
_NO_LIMIT = ("", "", "")
_BOUND = ("CPUSET", "MEMORY_POLICY")
_LUSTRE = r"Lustre(?:Error)?: (?:[0-9a-f]{1,4}-[0-9a-f]{1,4}: )?([^\s:]{1,100}): "

_IN_LIBRARY = r"(?: in (.{1,128}?)\[[0-9a-f,+]{1,60}\])?(?: likely on CPU \d.{0,40})?\s*\Z"

# Small words that the line must hold, its form, and what is made of it. The first that fits counts. Those of records
# that begin with a process's name are held to their end, for in the kernel's other records names and paths of users
# stand within quotes.
_OF_PROCESSES: tuple[Form, ...] = (
    (
        "page allocation failure",
        form(
            r"(.{1,15}): page allocation failure[.:,] {0,2}order:(\d{1,3}), mode:0x[0-9a-f]{1,16}(?:\([\w|]{0,400}\))?"
            r"(?:, nodemask=[\w(),-]{1,200})?(?:,cpuset=.{1,300},mems_allowed=[\d,-]{1,200})?\s*\Z"
        ),
        _page_allocation,
    ),
    (
        "segfault at",
        form(
            r"(.{1,15})\[(\d{1,10})\]: segfault at [0-9a-f]{1,16} ip \S{1,18} sp \S{1,18} error [0-9a-f]{1,8}"
            + _IN_LIBRARY
        ),
        _segfault,
    ),
    (
        "general protection",
        form(
            r"(?:traps: )?(.{1,15})\[(\d{1,10})\]:? general protection(?: fault)? ip:\S{1,18}"
            r"(?: sp:\S{1,18})?(?: error:\S{1,8})?" + _IN_LIBRARY
        ),
        _segfault,
    ),
)
_FORMS: tuple[Form, ...] = (
    (
        "out of memory",
        form(
            r"(Memory cgroup )?out of memory(?: \([^()]{1,40}\))?: Kill(?:ed)? process (\d{1,10}) "
            r"\((.{0,15}?)\)(?=[ ,]|\Z)",
        ),
        _killed,
    ),
    (
        "fork rejected",
        form(r"cgroup: fork rejected by pids controller(?: in (\S{1,200}))?"),
        _fork,
    ),
    *_OF_PROCESSES,
    *HARDWARE_FORMS,
    *DEVICE_FORMS,
    ("efa ", form(rf"efa (?P<address>{ADDRESS})(?: (?P<name>[\w-]{{1,64}}))?: (?P<words>.{{1,300}})"), _efa),
    ("infiniband ", form(r"infiniband (?P<name>(?:rdmap|efa_)\w{1,40}): (?P<words>.{1,300})"), _efa),
    (
        "for more than",
        form(r"INFO: task (.{1,64}):(\d{1,10}) blocked\b.{0,40}? for more than (\d{1,9}) seconds"),
        _hung,
    ),
    (
        "hard lockup",
        form(
            r"(?:NMI )?(?:watchdog: )?(?:CPU\d{1,6}: )?Watchdog detected hard LOCKUP on cpu \d{1,6}"
            r"|Kernel panic - not syncing: (?:Watchdog detected )?hard LOCKUP"
        ),
        _lockup("hard"),
    ),
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
