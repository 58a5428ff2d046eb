"""The logs of `dcgmi diag`, typed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, flag, known, optional, text, whole

_XID = re.compile(r"\s*Detected XID (\d{1,6}) for GPU \d", re.IGNORECASE)  # DCGM's DCGM_FR_XID_ERROR


@record
class Message(Reported):
    """What DCGM says of a result; `severity` is its number, None where the form of output has none."""

    text = Field(text)
    severity = Field(optional(whole))


@record
class Result(Reported):
    """One result of a test; `gpu` is empty where it is of all GPUs. `status`: pass fail warn skip `not run` unknown."""

    gpu = Field(text)
    status = Field(text)
    messages = Field(every(Message), where="dcgm_diag: messages")

    @property
    def device(self) -> str:
        """`3`; empty where it is of all GPUs, or that is unread, and that part of a check incomplete."""
        return known(lambda: self.gpu, "")

    @property
    def said(self) -> tuple[Message, ...]:
        """Its messages; of what is unread that part of a check is incomplete."""
        return known(lambda: self.messages, ())

    @property
    def xids(self) -> tuple[int, ...]:
        """The Xids that came while the test ran, where it complains of nothing else. Raises Incomplete."""
        found = [_XID.match(message.text) for message in self.said]
        return tuple(int(one[1]) for one in found if one) if all(found) else ()


@record
class DiagTest(Reported):
    """One test of a run, with the results of all GPUs."""

    name = Field(text)
    results = Field(every(Result), where="dcgm_diag: results")  # one for each GPU, or one for all, or both

    def ending(self, statuses: Iterable[str]) -> tuple[Result, ...]:
        """The results that are one of these; of all GPUs only where no single GPU is named. Raises Incomplete."""
        found = tuple(result for result in self.results if result.status in statuses)
        single = tuple(result for result in found if result.device or result.said)
        return single or found


@record
class DiagLog(Reported):
    """One run of `dcgmi diag`; `exit` is None where nobody wrote it down, `is_complete` whether its end was reached."""

    version = Field(text)
    exit = Field(optional(whole))
    is_complete = Field(flag, "complete")
    runtime_error = Field(text)
    tests = Field(every(DiagTest), where="dcgm_diag: tests")  # in their order


@record
class DcgmDiag(Reported):
    """Every captured run of `dcgmi diag`."""

    logs = Field(every(DiagLog), where="dcgm_diag: logs")  # in the order of their files
