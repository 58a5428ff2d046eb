"""The logs of nccl-tests, and what NCCL says in any log of its network, typed."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    every,
    number,
    one,
    optional,
    read,
    table,
    text,
    texts,
    values,
    whole,
)


@record
class Measured(Reported):
    """One half of a row, out of place or in place; None where nccl-tests says N/A or has no such column."""

    time_us = Field(optional(number))
    algbw_gb_per_s = Field(optional(number))  # 10^9 bytes
    busbw_gb_per_s = Field(optional(number))
    wrong = Field(optional(whole))  # values that are not right
    deviation = Field(optional(number))  # before nccl-tests 2.11: the largest, in place of `wrong`

    @property
    def is_checked(self) -> bool:
        """Whether its results were compared with the right ones."""
        return self.wrong is not None or self.deviation is not None


@record
class Row(Reported):
    """One size."""

    size_bytes = Field(whole)
    count = Field(whole)
    type = Field(text)
    redop = Field(text)
    out_of_place = Field(one(Measured), where="nccl_tests: out_of_place")  # with another buffer for the results
    in_place = Field(one(Measured), where="nccl_tests: in_place")  # with the results in the same buffer

    @property
    def wrong(self) -> int:
        """How many values are wrong, of both halves. Raises Incomplete."""
        return (self.out_of_place.wrong or 0) + (self.in_place.wrong or 0)


@record
class Network(Reported):
    """What NCCL's own lines say. Names with the number of lines that have them."""

    info_lines = Field(whole)

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
        """`(found N nics)`: every number that a rank logged. Raises Incomplete."""
        found = read(self.data.get("nics"), values, "nccl_tests: nics")
        return tuple(read(each, whole, "nccl_tests: nics") for each in found)


@record
class NcclLog(Reported):
    """One log. Where nccl-tests did not write it, only `network` is known."""

    version = Field(text)
    collective = Field(text)
    out_of_bounds = Field(optional(whole))
    out_of_bounds_word = Field(text)
    avg_busbw_gb_per_s = Field(optional(number))
    ranks = Field(optional(whole))
    hosts = Field(texts)
    problems = Field(texts)
    exit = Field(optional(whole))
    rows = Field(every(Row), where="nccl_tests: rows")  # of all its tables
    network = Field(one(Network), where="nccl_tests: network")  # what NCCL said of it

    @property
    def is_of_nccl_tests(self) -> bool:
        """Whether nccl-tests wrote it, or should have."""
        return "rows" in self.data


@record
class NcclTests(Reported):
    """Every captured log of NCCL."""

    logs = Field(every(NcclLog), where="nccl_tests: logs")  # in the order of their files
