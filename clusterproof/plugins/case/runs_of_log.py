"""Several runs of a job, or of several jobs, in one file of output: Slurm and shells append where they are told to.

Where Slurm ended the script of one, and lines follow that are far later by the same clock, another run began behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from clusterproof.plugins.case import Event
from clusterproof.plugins.case.clocks import Clock, unwrapped
from clusterproof.plugins.case.output import LONGEST_LINE, LONGEST_WRAPPED, Output, OutputReader, OutputSource
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.record import replace

_ENDED = re.compile(r"error: \*\*\* JOB \d{1,12} ON \S{1,253} CANCELLED AT ")


def read(lines: Iterable[str], source: OutputSource, clock: Clock) -> Output:
    """Parse the lines of one file: those of its last run; the events of earlier ones are said to be outlived."""
    runs = _Runs(source, clock)
    for number, line in enumerate(lines, 1):
        if line:
            wrote, own = unwrapped(line[:LONGEST_WRAPPED])
            runs.take(number, own[:LONGEST_LINE], wrote)
    return runs.output()


class _Runs:
    def __init__(self, source: OutputSource, clock: Clock) -> None:
        self.source, self.clock = source, clock
        self.run = OutputReader(source, clock)
        self.next: OutputReader | None = None  # of the lines behind an end, which may still be of that run
        self.ended, self.ended_in = 0.0, 0  # when, and in which line
        self.earlier: list[Event] = []

    def take(self, number: int, line: str, wrote: str) -> None:
        before = self.run.stamp.begins
        self.run.take(number, line, wrote)
        if self.next is not None:
            self.next.take(number, line, wrote)
            began = self.next.stamp.begins
            if began is not None and began > self.ended + limits().teardown_s:
                self.earlier.extend(self._of_ended())
                self.run, self.next = self.next, None
        if "*** JOB " in line and _ENDED.search(line):
            self._end(number, before)

    def _end(self, number: int, before: float | None) -> None:
        """A script ended; `before` is when its last line was written, which may be by the clock of another zone."""
        ended = self.run.stamp.ends
        if ended is not None and before is not None and before <= ended:
            self.next, self.ended, self.ended_in = OutputReader(self.source, self.clock), ended, number

    def _of_ended(self) -> Iterator[Event]:
        """The events of the run that ended."""
        output = self.run.output()
        for event in (*output.outlived, *output.events):
            line = event.position[1]
            if line is not None and line <= self.ended_in:
                yield event

    def output(self) -> Output:
        """What the last run wrote."""
        output = self.run.output()
        return replace(output, outlived=(*self.earlier, *output.outlived))
