"""The logs of nccom-test, typed."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, flag, number, optional, text, texts, whole


@record
class Row(Reported):
    """One size; bandwidths in 10^9 bytes a second, whatever the version of nccom-test means by GB/s."""

    size_bytes = Field(whole)
    count = Field(optional(whole))
    type = Field(text)
    time_us = Field(optional(number))
    algbw_gb_per_s = Field(optional(number))
    busbw_gb_per_s = Field(optional(number))


@record
class NccomLog(Reported):
    """One run; `is_checked` is None where the command line is not in the log, `problems` are its lines of errors."""

    command = Field(text)
    ranks = Field(optional(whole))
    is_checked = Field(optional(flag), "checked")
    unit = Field(text)  # what it meant by GB/s: GiB/s or GB/s, empty where the numbers do not show it
    avg_busbw_gb_per_s = Field(optional(number))
    problems = Field(texts)
    exit = Field(optional(whole))
    rows = Field(every(Row), where="nccom: rows")  # of all its tables


@record
class Nccom(Reported):
    """Every captured log of nccom-test."""

    logs = Field(every(NccomLog), where="nccom: logs")  # in the order of their files
