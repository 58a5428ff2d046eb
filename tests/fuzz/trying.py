"""Fuzzes one input with altered seeds: disallowed exceptions, and files that take too long."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.altering import Edit, altered, edits
from tests.fuzz.inputs import Input

IDLE_S = 5.0  # CPU seconds for a file of a megabyte on an idle machine
MAX_S = 30.0  # … on a machine however busy
AFTER_S = 60.0  # … before it is interrupted
AT_ONCE = 200  # examples


class TooLong(AssertionError):  # noqa: N818 - what it is
    """A file that takes more CPU time than allowed."""


@dataclass
class Tried:
    """What fuzzing found."""

    examples: int = 0
    read: int = 0  # how many were accepted
    worst_s: float = 0.0  # CPU seconds for one file
    failures: list[str] = field(default_factory=list)


def tried(source: Input, seconds: float, first: int, most: int = 10**9, most_s: float = MAX_S) -> Tried:
    """Fuzz one input for a time, or with a number of examples, of `most_s` each. `first` seeds the generator."""
    tally, until = Tried(), time.monotonic() + seconds
    for number in range(first, first + 10**9):
        if tally.examples >= most or time.monotonic() >= until or len(tally.failures) >= 5:
            return tally
        try:
            _try_some(source, number, min(AT_ONCE, most - tally.examples), until, tally, most_s)
        except Exception as problem:
            tally.failures.append(f"{type(problem).__name__}: {problem!s:.400}; {_note(problem)}")
    return tally


def _try_some(source: Input, number: int, count: int, until: float, tally: Tried, most_s: float) -> None:
    all_seeds = source.seeds

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(sorted(all_seeds)), edits)
    def try_one(name: str, changes: list[Edit]) -> None:
        if time.monotonic() >= until:
            return
        tally.examples += 1
        content = altered(all_seeds[name], changes)
        try:
            tally.worst_s = max(tally.worst_s, opened(source, name, content, tally, most_s))
        except Exception as problem:
            problem.args = (f"{name} {json.dumps(repr(changes))[:300]}: {problem!s:.200}",)
            raise

    try_one()


def opened(source: Input, name: str, content: bytes, tally: Tried | None = None, most_s: float = MAX_S) -> float:
    """The CPU seconds that a file takes. Raises TooLong, and whatever the input may not raise."""
    with TemporaryDirectory(prefix="clusterproof-fuzz-") as folder:
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return soon_opened(source, Path(folder), name, tally, most_s)


def soon_opened(source: Input, folder: Path, name: str, tally: Tried | None = None, most_s: float = MAX_S) -> float:
    """The same for an existing file, with the files beside it."""
    began = time.process_time()
    with _interrupted(AFTER_S):
        try:
            source.open(folder, name)
        except source.refuses:
            pass
        else:
            if tally:
                tally.read += 1
    took = time.process_time() - began
    if took > most_s:
        raise TooLong(f"{took:.1f} s of a processor; expected {most_s:g} s at most for a megabyte")
    return took


@contextmanager
def _interrupted(seconds: float) -> Iterator[None]:
    """Interrupt what takes this much CPU time."""

    def interrupt(*_: object) -> None:
        raise TooLong(f"more than {seconds:g} s of a processor")

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _note(problem: BaseException) -> str:
    """Where it was raised."""
    at = problem.__traceback__
    lines = []
    while at:
        lines.append(f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}")
        at = at.tb_next
    return " ".join(lines[-6:])
