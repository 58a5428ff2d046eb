"""The runner: starts the collectors in parallel, receives their records, kills what hangs, and sends the frame."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.running import Running, SharedProcess
from clusterproof.plugins.agent.sending import WIDE_BYTES, bytes_within, send

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import TypedDict

    class Request(TypedDict):
        """What to read: each collector's module and deadline in seconds, and the settings for all of them."""

        collectors: dict[str, tuple[str, float]]
        root: str
        mount_s: float
        whole_s: float
        checkpoints: tuple[str, ...]
        mounts: tuple[str, ...]
        log_cursor: tuple[str, int, float]
        max_characters: int


POLL_S = 0.01  # between checks of a process that is being killed
REAP_S = 0.02  # for a collector that has answered to exit, so that its CPU time is known
LAST_S = 8.0  # of the time for everything: to send the answer
OUTPUT = 1
STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM)
# Collectors that read small files of the kernel, and wait for no program, device, server or user process.
QUICK = ("boot", "platform", "resource_config", "memory", "limits", "edac", "pci", "nvme", "neuron", "rdma")
# Collectors that usually are as quick, but can be delayed by a full log, a server, a daemon or a user process.
MOSTLY_QUICK = ("lustre", "kernel_log", "lustre_space", "jobs", "processes", "fabric_manager", "services", "kubelet")
SHARED_S = 0.5  # for all of these; what has not answered by then is started again, alone and with its own deadline


class Late(BaseException):
    """The time for reading is over, whatever is being done."""


def main(request: Request, nonce: str, sudo: str) -> None:
    """Answer one request and exit: runs all collectors in parallel, the quick ones in few processes."""
    collectors, root = request["collectors"], request["root"]

    def node(collector_s: float, is_hurried: bool = False) -> Node:
        return Node(
            root,
            str,
            collector_s,
            request["mount_s"],
            request["checkpoints"],
            request["log_cursor"],
            request["mounts"],
            is_hurried=is_hurried,
        )

    def read(running: list[Running]) -> None:
        nodes = {name: (module, node(collector_s)) for name, (module, collector_s) in collectors.items()}
        together = [{name: nodes.pop(name) for name in names if name in nodes} for names in (QUICK, MOSTLY_QUICK)]
        start(running, lambda: [Running(name, own, module) for name, (module, own) in nodes.items()])
        least_s = min((collector_s for _, collector_s in collectors.values()), default=SHARED_S)
        start(running, lambda: [SharedProcess(own, node(min(SHARED_S, least_s), True)) for own in together if own])
        collect(running)

    answer(read, request["whole_s"], root, nonce, sudo, request["max_characters"])


def answer(
    read: Callable[[list[Running]], None], whole_s: float, root: str, nonce: str, sudo: str, max_characters: int = 0
) -> None:
    """Send the records of the collectors that `read` starts, and exit; processes that cannot be killed are left behind.

    The answer has at most `max_characters` characters; 0: unlimited.
    """
    running: list[Running] = []
    try:
        _prepare(whole_s)
        began, clock = time.time(), time.monotonic()
        try:
            read(running)
            signal.signal(signal.SIGALRM, _stop)
        except Late:  # starting or ending collectors took too long: send what they have read
            for collector in running:
                collector.give_up()
        signal.setitimer(signal.ITIMER_REAL, min(LAST_S, whole_s))
        _reap(running)
        probe = {
            "python": sys.version.split()[0],
            "uid": os.geteuid(),
            "began": round(began, 3),
            "seconds": round(time.monotonic() - clock, 4),
            "cpu_s": round(sum(os.times()[:4]), 3),
            "root": root,
            "sudo": sudo,
        }
        value = {
            "probe": probe,
            "collectors": {collector.name: collector.record for collector in running if collector.name},
        }
        if max_characters:
            from clusterproof.plugins.agent.sending import fitted  # most answers fit

            send(fitted(value, bytes_within(max_characters)), nonce, chunk_bytes=WIDE_BYTES)
        else:
            send(json.dumps(value).encode(), nonce)
    except BrokenPipeError:
        pass  # the reader is gone
    except Exception:  # a bug of ours: the error is sent in place of the answer's end
        sys.excepthook(*sys.exc_info())
    finally:
        for collector in running:
            collector.kill()
        os._exit(0)


def collect(running: list[Running], beat_s: float = 0.0) -> None:
    """Wait until every collector has its record. Raises BrokenPipeError when the reader is gone.

    Prints an empty line every `beat_s` seconds, if set: a silent connection would be considered dead.
    """
    polled: dict[int, Running] = {}
    ending: list[Running] = []
    poll = select.poll()
    poll.register(OUTPUT, 0)
    for collector in [collector for collector in running if collector.record]:  # it could not be started
        start(running, collector.parts)
    _listen(running, polled, poll)
    while polled or ending:
        next_deadline = min((collector.deadline for collector in polled.values()), default=0.0)
        pause_s = POLL_S if ending else max(0.0, next_deadline - time.monotonic())
        if beat_s and pause_s > beat_s:
            os.write(OUTPUT, b"\n")
            pause_s = beat_s
        spoke = {pipe for pipe, _ in poll.poll(1000 * pause_s + 1)}
        if OUTPUT in spoke:
            raise BrokenPipeError
        for pipe, collector in list(polled.items()):
            if pipe in spoke:
                collector.receive()
            elif time.monotonic() > collector.deadline:
                collector.end("timed_out", collector.late())
            if collector.record or collector.is_ending:
                poll.unregister(pipe)
                del polled[pipe]
                ending += [collector] if collector.is_ending else []
                _listen(start(running, collector.parts), polled, poll)
        ending = [collector for collector in ending if not collector.has_ended()]


def start(running: list[Running], begin: Callable[[], list[Running]]) -> list[Running]:
    """Start collectors; a stop signal is blocked until they are in the list of those to kill."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        begun = begin()
        running += begun
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    return begun


def _listen(collectors: list[Running], polled: dict[int, Running], poll: select.poll) -> None:
    for collector in collectors:
        if not collector.record:
            polled[collector.pipe] = collector
            poll.register(collector.pipe, select.POLLIN)


def _prepare(whole_s: float) -> None:
    """Stop on the usual signals, and reading in time to send what was read; keep no folder busy."""
    for number in STOPS:
        signal.signal(number, _stop)
    signal.signal(signal.SIGALRM, _send_now)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.setitimer(signal.ITIMER_REAL, max(whole_s - LAST_S, whole_s / 2))
    os.chdir("/")


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(number)


def _send_now(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGALRM, _stop)
    raise Late


def _reap(running: list[Running]) -> None:
    until = time.monotonic() + REAP_S
    while sum(collector.reap() for collector in running) < len(running) and time.monotonic() < until:
        time.sleep(0.001)
