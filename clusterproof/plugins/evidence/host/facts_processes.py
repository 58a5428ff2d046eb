"""What jobs have left on a node, and what the kernel has of open files and threads, and may have."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    every,
    flag,
    number,
    optional,
    read,
    table,
    text,
    texts,
    whole,
    word,
)


@record
class JobProcess(Reported):
    """A process of a job that runs on the node no more: surely by its control group, else by its own environment."""

    pid = Field(whole)
    name = Field(word)
    uid = Field(whole)
    job = Field(text)
    is_sure = Field(optional(flag))  # of older recordings it is not known


@record
class OwnedShm(Reported):
    """What one user, who has no process on the node, has in /dev/shm."""

    uid = Field(whole)
    count = Field(whole)
    kib = Field(whole)
    oldest_s = Field(number)


@record
class Jobs(Reported):
    """Slurm's jobs; `unread` counts the processes that the probe's user may not look into."""

    running = Field(texts)
    left = Field(every(JobProcess))
    left_out = Field(whole)
    unread = Field(whole)
    shm = Field(every(OwnedShm))


PORTS = "/proc/sys/net/ipv4/ip_local_port_range"
# By their bits in /proc/sys/kernel/tainted (Linux, Documentation/admin-guide/tainted-kernels.rst).
TAINTS = {4: "a machine check (M)", 5: "a bad page (B)", 7: "an Oops (D)", 14: "a soft lockup (L)"}


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
    settings = Field(table)  # what the files hold that are named so; empty where there is no such file
    modes = Field(table)  # the permissions of folders that all users share

    def setting(self, path: str) -> str:
        """What such a file holds. Raises Incomplete."""
        return read(self.settings.get(path), text, path)

    def number(self, path: str) -> int | None:
        """The number that it holds; None where the kernel has no such setting. Raises Incomplete."""
        words = self.setting(path)
        return read(int(words) if words.isdecimal() else words, whole, path) if words else None

    def mode(self, folder: str) -> int:
        """The permissions of a folder. Raises Incomplete."""
        return read(self.modes.get(folder), whole, folder)

    @property
    def ports(self) -> int | None:
        """How many ports there are for connections that programs begin; None where unknown. Raises Incomplete."""
        first, _, last = " ".join(self.setting(PORTS).split()).partition(" ")
        return int(last) - int(first) + 1 if first.isdecimal() and last.isdecimal() else None

    @property
    def taints(self) -> tuple[str, ...]:
        """What has happened to the kernel since boot that it does not recover from. Raises Incomplete."""
        bits = self.number("/proc/sys/kernel/tainted") or 0
        return tuple(words for bit, words in TAINTS.items() if bits >> bit & 1)
