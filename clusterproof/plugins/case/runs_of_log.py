"""Several runs of a job, or of several jobs, in one file of output: Slurm and shells append where they are told to.

Where Slurm ended the script of one, and lines follow a long silence by the same clock, another run began behind it. A
run that goes on to write behind its end is no other: KillWait may be minutes, and `--signal=B:TERM@600` is a warning.
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
        self.next: OutputReader | None = None  # of lines without a time behind the last one of a run that ended
        self.wrote, self.wrote_in = 0.0, 0  # that one: when, and its number
        self.earlier: list[Event] = []

    def take(self, number: int, line: str, wrote: str) -> None:
        before = self.run.stamp.begins
        self.run.take(number, line, wrote)
        if self.next is not None:
            self._take_behind_end(self.next, number, line, wrote)
        if "*** JOB " in line and _ENDED.search(line):
            self._end(number, before)

    def _take_behind_end(self, following: OutputReader, number: int, line: str, wrote: str) -> None:
        """A line without a time may be of either run; one with a time is of the next if a long silence is before it."""
        begins, ends = (self.run.stamp.begins, self.run.stamp.ends) if self.run.is_stamped else (None, None)
        is_of_next = begins is not None and begins > self.wrote + limits().teardown_s
        if ends is not None and not is_of_next:
            self._begin(number, max(self.wrote, ends))
            return
        following.take(number, line, wrote)
        if is_of_next:
            self.earlier.extend(self._of_ended())
            self.run, self.next = following, None

    def _begin(self, number: int, wrote: float) -> None:
        self.next, self.wrote, self.wrote_in = OutputReader(self.source, self.clock), wrote, number

    def _end(self, number: int, before: float | None) -> None:
        """A script ended; `before` is when its last line was written, which may be by the clock of another zone."""
        ended = self.run.stamp.ends
        if ended is not None and before is not None and before <= ended:
            self._begin(number, ended)

    def _of_ended(self) -> Iterator[Event]:
        """The events of the run that ended."""
        output = self.run.output()
        for event in (*output.outlived, *output.events):
            line = event.position[1]
            if line is not None and line <= self.wrote_in:
                yield event

    def output(self) -> Output:
        """What the last run wrote."""
        output = self.run.output()
        return replace(output, outlived=(*self.earlier, *output.outlived))
