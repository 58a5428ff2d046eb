"""What jobs have left on a node."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, flag, number, optional, text, texts, whole, word


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
