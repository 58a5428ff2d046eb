"""stress-ng on a node: what it verified, what failed, and the kernel log of that time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, integer, number, optional, text
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError
from clusterproof.plugins.evidence.kernel_log.facts import lines, parse
from clusterproof.plugins.evidence.perf.facts import ProgramRun

STRESSORS = ("cpu", "vm")
ENDINGS = {  # exit status, from the manual
    1: "an error of its own",
    2: "a stressor failed",
    3: "a stressor lacked resources",
    4: "a stressor that is not implemented here",
    5: "a stressor was killed by a signal",
    6: "a stressor ended by itself",
    7: "counts that are not to be trusted",
}
_FAILED = re.compile(r"^stress-ng: fail: {1,4}\[\d{1,10}\] {1,4}(?:stress-ng-)?(.{1,200})", re.MULTILINE)
_DONE = re.compile(r"^stress-ng: (?:metrc|info): {1,4}\[\d{1,10}\] (\w{1,30}) {1,30}(\d{1,18}) {1,30}\d", re.MULTILINE)
_STARVED = re.compile(r"^.{0,200}killed by (?:the )?OOM killer", re.MULTILINE)


@record
class StressNg(ProgramRun):
    """One run; `memory_mib` is the memory of its workers, `budget_s` how long they had."""

    seconds = Field(number)
    cores = Field(integer)  # with workers
    online = Field(optional(integer))  # of the node; 0 if not known, None in older recordings
    memory_mib = Field(integer)
    budget_s = Field(integer)
    kernel_lost = Field(integer)  # records that were overwritten before they were read
    kernel_unread = Field(text)  # why the log could not be followed
    _kernel = Field(lines, "kernel")

    @property
    def failed(self) -> tuple[str, ...]:
        """All its failure messages: `vm: detected 24 bit errors while stressing memory`."""
        return tuple(match[1].strip() for match in _FAILED.finditer(self.output))

    @property
    def wrong(self) -> tuple[str, ...]:
        """The failures that are wrong results of its stressors."""
        return tuple(failure for failure in self.failed if failure.partition(":")[0] in STRESSORS)

    @property
    def done(self) -> Mapping[str, int]:
        """How many bogo operations each stressor completed."""
        return {match[1]: int(match[2]) for match in _DONE.finditer(self.output) if match[1] in STRESSORS}

    @property
    def lacked_memory(self) -> bool:
        """Whether a worker was killed for lack of memory."""
        return bool(_STARVED.search(self.output))

    @property
    def hardware_errors(self) -> tuple[HardwareError, ...]:
        """The errors of memory and CPUs in the kernel log while it ran."""
        return tuple(event for event in parse(self._kernel) if isinstance(event, HardwareError))
