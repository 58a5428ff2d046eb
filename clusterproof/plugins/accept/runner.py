"""Runs the steps of an acceptance, each as its own `clusterproof check`, and records those that ended.

Each run has its own folder, and writes its exit code there last: a run that ended unobserved counts, one without a code
does not. Each run also holds the journal's lock: two never load the nodes at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clusterproof.plugins.accept import RECORDING, RESULTS, journal, read_run
from clusterproof.plugins.accept.journal import EndedRun, JournalError, RepairedNodes
from clusterproof.plugins.accept.plan import AcceptancePlan
from clusterproof.plugins.accept.state import AcceptanceState, NextRun
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.opened import distrust, keep_private, opened
from clusterproof.plugins.core.own_python import python_running

COMPLETE_EXITS = (0, 1, 5, 10)  # exit codes of complete runs
BROKEN = 3  # of a run that crashed, as in pytest: Python's own code is 1, like a run with findings
EXIT, BEGAN, COMMAND, OUTPUT, LOCK = "exit", "began", "command.json", "output.txt", "lock"
MAX_TEXT = 1 << 24  # bytes; a command line may name 100,000 nodes
CHILD = """
import os, sys
from clusterproof.plugins.command_line.main import main
code = main(sys.argv[2:])
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{code}\\n")
    file.flush()
    os.fsync(file.fileno())
os.replace(sys.argv[1] + ".part", sys.argv[1])
sys.exit(code)
"""
Say = Callable[[str], None]
Launch = Callable[
    [Sequence[str], Path, int], int
]  # arguments of `clusterproof`, the folder, the lock: the exit code of the run


class Acceptance:
    """One acceptance and its folder."""

    def __init__(
        self, cluster: Cluster, named: str, plan: AcceptancePlan, folder: Path, launch: Launch | None = None
    ) -> None:
        self.cluster = cluster
        self.named = named  # the X on the command line
        self.plan = plan
        self.folder = folder
        self.launch = launch or launched
        self.state = AcceptanceState(plan, cluster)
        self.ended: list[EndedRun] = []
        self.is_read = False  # whether earlier runs were loaded

    def read(self) -> None:
        """Load the finished runs. Raises JournalError, OSError."""
        for line in journal.read(self.folder, self.named, self.plan.digest):
            if isinstance(line, RepairedNodes):
                self.state.discard(line.nodes, is_declared=True)
                continue
            changed = journal.altered(self.folder / line.folder, line.evidence)
            if changed:
                raise JournalError(
                    f"{self.folder / line.folder}: {changed} is not what it was when its run ended; expected evidence "
                    "as it was written"
                )
            self._take_in(line)

    def _take_in(self, line: EndedRun) -> None:
        stage = next((stage for stage in self.plan.stages if stage.name == line.stage), None)
        if stage is None:
            raise JournalError(
                f"{self.folder / journal.FILE} has a run of {line.stage!r:.40} on {fold(line.nodes):.80}; expected a "
                "stage of the plan"
            )
        expected = self._next_folder(stage.name)
        if line.folder != expected:
            raise JournalError(
                f"{self.folder / journal.FILE} has {line.folder} where {expected} was due; expected every run once, in "
                "their order"
            )
        try:
            ran = read_run(self.folder / line.folder)
        except (OSError, ValueError) as problem:
            raise JournalError(f"{self.folder / line.folder}: {problem}; expected what its run wrote") from None
        self.state.add(NextRun(stage, line.number, line.nodes), ran, line.folder, line.seconds)
        self.ended.append(line)

    def go_on(self, again: Sequence[str], say: Say) -> str:
        """Run what is left; returns what prevented it, in words.

        Raises JournalError, OSError, and KeyboardInterrupt if a signal ended a run.
        """
        end_private = keep_private()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            doubt = distrust(self.folder)
            if doubt:
                raise JournalError(
                    f"{self.folder} {doubt}, who could forge what a run left; expected a folder that only you may write"
                )
            with self._locked(say) as lock:
                self.read()
                self.is_read = True
                writer = journal.JournalWriter(self.folder, self.named, self.plan.digest)
                try:
                    if again:
                        self._count_unseen(writer, lock)
                        writer.append(RepairedNodes(tuple(again), time.time()))
                        self.state.discard(again, is_declared=True)
                    return self._steps(writer, lock, say)
                finally:
                    writer.close()
        finally:
            end_private()

    @contextmanager
    def _locked(self, say: Say) -> Iterator[int]:
        """Hold the lock, which runs of a killed acceptance hold until they end."""
        file = os.open(self.folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for the acceptance, or its last run, that has {self.folder / LOCK}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _count_unseen(self, writer: journal.JournalWriter, lock: int) -> None:
        """Record a run that ended unobserved: it saw nodes as they were before their repair."""
        step = self.state.next()
        if step and self._is_ended(step):
            self._keep(self._run(step, lock), writer)

    def _keep(self, line: EndedRun, writer: journal.JournalWriter) -> None:
        writer.append(line)
        self._take_in(line)

    def _is_ended(self, step: NextRun) -> bool:
        folder = self.folder / self._next_folder(step.stage.name)
        return _text(folder / COMMAND) == self._typed(step, folder) and _number(folder / EXIT, -1) in COMPLETE_EXITS

    def _typed(self, step: NextRun, folder: Path) -> str:
        """The command of a run, which identifies it: independent of whether it continues pairs."""
        return json.dumps([word for word in self._arguments(step, folder) if not word.startswith("--resume=")])

    def _steps(self, writer: journal.JournalWriter, lock: int, say: Say) -> str:
        while step := self.state.next():
            minutes = self.plan.minutes(step.stage)
            if self.state.spent_s + 60 * minutes > self.plan.hours * 3600:
                where = f"{step.stage.title.lower()} of {fold(step.nodes):.200}"
                return f"{self.plan.hours:g} hours are spent; {where} was not begun"
            say(f"{step.stage.title}: {fold(step.nodes):.200}, about {minutes:.3g} min")
            self._keep(self._run(step, lock), writer)
        return ""

    def _next_folder(self, stage: str) -> str:
        """The folder of the next run, if it is of this stage."""
        return f"runs/{len(self.ended) + 1:04}-{stage}"

    def _run(self, step: NextRun, lock: int) -> EndedRun:
        """Raises JournalError if it did not end."""
        name = self._next_folder(step.stage.name)
        folder = self.folder / name
        arguments, typed = self._arguments(step, folder), self._typed(step, folder)
        seconds = None
        if not self._is_ended(step):
            self._clear(folder, keeps_pairs=_text(folder / COMMAND) == typed)
            arguments = self._arguments(step, folder)
            (folder / COMMAND).write_text(typed, encoding="utf-8")
            (folder / BEGAN).write_text(f"{time.time()}\n", encoding="utf-8")
            start = time.monotonic()
            self.launch(arguments, folder, lock)
            seconds = time.monotonic() - start
        code = _number(folder / EXIT, -1)
        if code not in COMPLETE_EXITS:
            if code == 2:
                raise KeyboardInterrupt
            raise JournalError(
                f"the run did not end (exit code {code:g}): {last_line(folder / OUTPUT)}; expected it to end; "
                f"{folder / OUTPUT} has more"
            )
        # For a run that ended unobserved, only the wall clock is available.
        began, ended = _number(folder / BEGAN, 0.0), (folder / EXIT).stat().st_mtime
        return EndedRun(
            step.stage.name,
            step.number,
            step.nodes,
            ("clusterproof", *arguments),
            int(code),
            began,
            ended,
            max(0.0, ended - began) if seconds is None else seconds,
            name,
            journal.sealed(folder),
        )

    def _arguments(self, step: NextRun, folder: Path) -> list[str]:
        """The arguments of `clusterproof`."""
        arguments = [
            "check",
            self.named,
            f"--nodes={fold(step.nodes)}",
            *self.plan.expectations,
            *self.plan.options,
            *step.stage.options,
        ]
        arguments += ["-m", step.stage.marks] if step.stage.marks else []
        arguments += ["-k", step.stage.keyword] if step.stage.keyword else []
        arguments += [
            f"--record={folder / RECORDING}",
            f"--results={folder / RESULTS}",
            f"--report={folder / 'report'}",
        ]
        if step.stage.is_load and step.stage.scope == "nodes":
            arguments += [f"--fs-at-once={self.plan.at_once(self.plan.fs_at_once)}"]
        if step.stage.scope != "nodes":
            arguments += [
                f"--pairs-seed={int(self.plan.digest[:5], 16)}",
                *([f"--pairs-at-once={self.plan.pairs_limit}"] if self.plan.pairs_limit else []),
            ]
            if list((folder / RECORDING).glob("pairwise*.jsonl")):
                arguments += [f"--resume={folder / RECORDING}"]
        return arguments

    def _clear(self, folder: Path, *, keeps_pairs: bool) -> None:
        """Remove the files of an unfinished run, except its pair measurements, which are continued."""
        pairs = (folder / RECORDING).glob("pairwise*.jsonl") if keeps_pairs else ()
        kept = {path.name: path.read_bytes() for path in pairs}
        shutil.rmtree(folder, ignore_errors=True)
        (folder / RECORDING).mkdir(parents=True)
        for name, content in kept.items():
            (folder / RECORDING / name).write_bytes(content)


def launched(arguments: Sequence[str], folder: Path, lock: int | None = None) -> int:
    """Run to the end; returns BROKEN if it crashed. Signals are passed on and waited for: a run cleans up after itself.

    Then raises KeyboardInterrupt; if the run ended anyway, the next start counts it.
    """
    signals: list[int] = []
    with (folder / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            [*python_running(CHILD), str(folder / EXIT), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[] if lock is None else [lock],
            start_new_session=True,
        )

    def passed_on(number: int, _frame: object) -> None:
        signals.append(number)
        process.send_signal(number)

    before = {number: signal.signal(number, passed_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signals:
        raise KeyboardInterrupt
    return BROKEN if code in COMPLETE_EXITS and not (folder / EXIT).exists() else code


def _text(path: Path) -> str:
    """The end of a file; empty if it does not exist."""
    try:
        with opened(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_TEXT))
            return file.read(MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""


def _number(path: Path, default: float) -> float:
    try:
        return float(_text(path))
    except ValueError:
        return default


def last_line(path: Path) -> str:
    """The last line that a run printed."""
    lines = _text(path).strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
