"""How much logs and crash dumps take of their file systems."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.fact import list_collected_as
from clusterproof.plugins.evidence.field import Field, Reported, boolean, integer, objects_as, word


@record
class LogFile(Reported):
    """One of the largest files."""

    path = Field(word)  # any user can name a file in /var/crash
    kib = Field(integer)


@record
class LogFolder(Reported):
    """A folder of logs: what its files take on the disk, as far as they were looked at."""

    label = Field(word, "name")
    kib = Field(integer)
    largest = Field(objects_as(LogFile))
    unread = Field(integer)  # folders in it
    is_cut = Field(boolean)  # there are more entries than were looked at
    total_kib = Field(integer)  # of the file system
    used_kib = Field(integer)  # of it, by whatever is on it


log_folders = list_collected_as("logs", "folders", LogFolder)
