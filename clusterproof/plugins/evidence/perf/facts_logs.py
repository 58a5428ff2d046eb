"""Typed logs of `dcgmi diag`, nccl-tests and nccom-test, and NCCL's own messages about its network."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    each,
    integer,
    known,
    number,
    object_as,
    objects_as,
    optional,
    read,
    readings,
    table,
    text,
    texts,
    values,
)


@record
class Measured(Reported):
    """One half of a row, out of place or in place; None if nccl-tests prints N/A or has no such column."""

    time_us = Field(optional(number))
    algbw_gb_per_s = Field(optional(number))  # 10^9 bytes
    busbw_gb_per_s = Field(optional(number))
    wrong = Field(optional(integer))  # values that are not right
    deviation = Field(optional(number))  # before nccl-tests 2.11: the largest, in place of `wrong`

    @property
    def is_checked(self) -> bool:
        """Whether its results were compared with the expected ones."""
        return self.wrong is not None or self.deviation is not None


@record
class Row(Reported):
    """One row of nccl-tests: one message size."""

    size_bytes = Field(integer)
    count = Field(integer)
    type = Field(text)
    out_of_place = Field(object_as(Measured), where="nccl_tests: out_of_place")  # with another buffer for the results
    in_place = Field(object_as(Measured), where="nccl_tests: in_place")  # with the results in the same buffer

    @property
    def label(self) -> str:
        """`8 bytes`; a phrase if the size is unknown."""
        reading, _ = readings(self, "size_bytes")
        return f"{reading['size_bytes']} bytes" if reading else "an unknown size"

    @property
    def gib(self) -> str:
        """`8 GiB`. Raises Incomplete."""
        return f"{self.size_bytes / 2**30:g} GiB"

    @property
    def wrong(self) -> int:
        """How many values are wrong, in the halves that are known."""
        halves, _ = readings(self, "out_of_place", "in_place")
        return sum(readings(half, "wrong")[0].get("wrong") or 0 for half in halves.values())


@record
class Network(Reported):
    """NCCL's own messages: names with the number of lines that contain them."""

    info_lines = Field(integer)
    warnings = Field(texts)

    @property
    def networks(self) -> tuple[str, ...]:
        """`Using network …`: AWS Libfabric, IB, Socket. Raises Incomplete."""
        return tuple(read(self.data.get("networks"), table, "nccl_tests: networks"))

    @property
    def providers(self) -> tuple[str, ...]:
        """`Selected provider is …`: efa, tcp;ofi_rxm. Raises Incomplete."""
        return tuple(read(self.data.get("providers"), table, "nccl_tests: providers"))

    @property
    def nics(self) -> tuple[int, ...]:
        """`(found N nics)`: each number that a rank logged. Raises Incomplete."""
        numbers = read(self.data.get("nics"), values, "nccl_tests: nics")
        return tuple(read(count, integer, "nccl_tests: nics") for count in numbers)


@record
class NcclLog(Reported):
    """One log. If nccl-tests did not write it, only `network` is known."""

    version = Field(text)
    collective = Field(text)
    out_of_bounds = Field(optional(integer))  # None if a run of the log has no such line
    out_of_bounds_word = Field(text)  # of another run that has one
    avg_busbw_gb_per_s = Field(optional(number))
    ranks = Field(optional(integer))
    hosts = Field(texts)
    apart = Field(optional(texts))  # hosts of the rank 0 of each run, of several at once
    problems = Field(texts)
    exit = Field(optional(integer))
    given = Field(optional(integer), "gpus")  # GPUs, where it was run over all of one node
    rows = Field(objects_as(Row), where="nccl_tests: rows")  # of all its tables
    network = Field(object_as(Network), where="nccl_tests: network")  # what NCCL said of it

    @property
    def is_of_nccl_tests(self) -> bool:
        """Whether nccl-tests wrote it, or was started and should have."""
        return bool(self.data.keys() - {"network"})


@record
class NcclTests(Reported):
    """All captured logs of NCCL."""

    logs = Field(objects_as(NcclLog), where="nccl_tests: logs")  # in the order of their files


@record
class NccomRow(Reported):
    """One size; bandwidths in 10^9 bytes a second, whatever GB/s means in that version of nccom-test."""

    size_bytes = Field(integer)
    count = Field(optional(integer))
    type = Field(text)
    time_us = Field(optional(number))
    algbw_gb_per_s = Field(optional(number))
    busbw_gb_per_s = Field(optional(number))


@record
class NccomLog(Reported):
    """One run; `is_checked` is None if the command line is not in the log, `problems` are the lines with errors."""

    command = Field(text)
    ranks = Field(optional(integer))
    is_checked = Field(optional(boolean), "checked")
    unit = Field(text)  # what it meant by GB/s: GiB/s or GB/s, empty where the numbers do not show it
    avg_busbw_gb_per_s = Field(optional(number))
    problems = Field(texts)
    exit = Field(optional(integer))
    rows = Field(objects_as(NccomRow), where="nccom: rows")  # of all its tables


@record
class Nccom(Reported):
    """All captured logs of nccom-test."""

    logs = Field(objects_as(NccomLog), where="nccom: logs")  # in the order of their files


_XID = re.compile(r"\s*Detected XID (\d{1,6}) for GPU \d", re.IGNORECASE)  # DCGM's DCGM_FR_XID_ERROR


@record
class Message(Reported):
    """A message of DCGM about a result; `severity` is its number, None if the output has none."""

    text = Field(text)
    severity = Field(optional(integer))


@record
class Result(Reported):
    """One result of a test; `gpu` is empty if it is about all GPUs. `status`: pass fail warn skip `not run` unknown."""

    gpu = Field(text)
    status = Field(text)
    messages = Field(objects_as(Message), where="dcgm_diag: messages")

    @property
    def device(self) -> str:
        """`3`; empty if it is about all GPUs, or could not be read, which makes that part of a check incomplete."""
        return known(lambda: self.gpu, "")

    @property
    def reported(self) -> tuple[Message, ...]:
        """Its messages; of what is unread that part of a check is incomplete."""
        return known(lambda: self.messages, ())

    @property
    def xids(self) -> tuple[int, ...]:
        """The Xids that came while the test ran, where it is known to complain of nothing else."""
        texts = (readings(message, "text")[0].get("text", "") for message in self.reported)
        matches = [_XID.match(text) for text in texts]
        return tuple(int(match[1]) for match in matches if match) if all(matches) else ()


@record
class DiagTest(Reported):
    """One test of a run with the results of all GPUs."""

    name = Field(text)
    results = Field(objects_as(Result), where="dcgm_diag: results")  # one for each GPU, or one for all, or both

    def ending(self, statuses: Iterable[str]) -> tuple[Result, ...]:
        """The results with one of these statuses; those for all GPUs only if no single GPU is named.

        Raises Incomplete.
        """
        ended = each(self.results, lambda result: (result, result.status))
        results = tuple(result for result, status in ended if status in statuses)
        single = tuple(result for result in results if result.device or result.reported)
        return single or results


@record
class DiagLog(Reported):
    """One run of `dcgmi diag`; `exit` is None if unknown, `is_complete` whether it reached its end."""

    version = Field(text)
    exit = Field(optional(integer))
    is_complete = Field(boolean, "complete")
    runtime_error = Field(text)
    gpus = Field(optional(integer))  # on how many it ran; None where it does not say, and in older recordings
    tests = Field(objects_as(DiagTest), where="dcgm_diag: tests")  # in their order


@record
class DcgmDiag(Reported):
    """All captured runs of `dcgmi diag`."""

    logs = Field(objects_as(DiagLog), where="dcgm_diag: logs")  # in the order of their files
