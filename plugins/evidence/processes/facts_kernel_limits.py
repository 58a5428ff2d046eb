"""What the kernel has of open files and threads, and may have."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, text, whole


@record
class PidsGroup(Reported):
    """A control group that may have only so many processes and threads."""

    path = Field(text)
    pids = Field(whole)
    most = Field(whole, "max")


@record
class KernelLimits(Reported):
    """Of the whole node, and of the control groups of its daemons and above pods that have a limit."""

    open_files = Field(whole)
    max_files = Field(whole)
    threads = Field(whole)
    pid_max = Field(whole)
    threads_max = Field(whole)
    groups = Field(every(PidsGroup))
