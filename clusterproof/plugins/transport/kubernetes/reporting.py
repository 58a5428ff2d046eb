"""The agent on a node: collects at an interval, and prints a report that the gate reads from its log.

It has no account, opens no port and contacts nobody. Its pod sees the host at /host: the host's own shell and Python
run the program there, or the image's Python if the host has none.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from clusterproof.plugins.agent.frame import printable
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.fact import IN_JOB, LOAD_COLLECTORS, ONLY_CAPTURED
from clusterproof.plugins.kubernetes import HOST
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.gather import evidence_of
from clusterproof.plugins.transport.kubernetes.agents import COLLECTED_S, REPORT
from clusterproof.plugins.transport.local import Local

MAX_CHARACTERS = 1_000_000  # characters of a report: a kubelet keeps 10 MiB of a log before rotating it
AWAY_S = 30.0  # the file's minimum absence, whatever the interval: a kubelet probes it every 10 s
LOCAL_TARGET = Target("here")


class UnchangedFile:
    """A file that exists while the node's verdicts are unchanged, for the pod's readiness probe."""

    def __init__(
        self, path: Path, digest: Callable[[NodeEvidence], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._digest = digest
        self._clock = clock
        self._before = ""
        self._changed_at = 0.0

    def note(self, evidence: NodeEvidence) -> None:
        """Handle another report, or the lack of one."""
        now = "" if evidence.unreached else self._digest(evidence)
        at = self._clock()
        if not now or now != self._before:
            self._path.unlink(missing_ok=True)
            self._before, self._changed_at = now, at
        elif at - self._changed_at >= AWAY_S:
            self._path.touch()


def report_for_ever(
    every_s: float,
    options: ProbeOptions,
    is_over: threading.Event,
    note: Callable[[NodeEvidence], object] = id,
) -> None:
    """Print a report every `every_s`, from the host at HOST, until it is over; `note` is called for each."""
    options = replace(options, host_root="/", max_characters=MAX_CHARACTERS)
    methods = [(f"chroot {HOST} ", options), ("", replace(options, host_root=HOST))]
    while not is_over.is_set():
        began = time.monotonic()
        output, evidence = _collected(*methods[0])
        if evidence.unreached is Unreached.NO_PYTHON and len(methods) > 1:
            del methods[0]
            continue
        if evidence.unreached:
            sys.stderr.write(f"no report: {evidence.unreached.value}: {printable(evidence.detail)}\n")
        else:
            sys.stdout.buffer.write(output)
            sys.stdout.flush()
        note(evidence)
        is_over.wait(max(0.0, every_s - (time.monotonic() - began)))


def _collected(within: str, options: ProbeOptions) -> tuple[bytes, NodeEvidence]:
    """A report to print, and what it contains: only the program's own lines, which nobody else can write."""
    every = frozenset(collector_names()) - LOAD_COLLECTORS - IN_JOB - ONLY_CAPTURED
    to_run = program(every, options)
    answers: list[Answer] = []

    def note(_: Target, answer: Answer) -> None:
        answers.append(answer)

    Local().run([LOCAL_TARGET], replace(to_run, command=within + to_run.command), Limits(answer_s=COLLECTED_S), note)
    mark = to_run.nonce.encode()
    lines = [line for line in answers[0].output.splitlines(keepends=True) if line.startswith(mark)]
    return b"".join(lines).replace(mark, REPORT.encode()), evidence_of(LOCAL_TARGET, answers[0], to_run.nonce)
