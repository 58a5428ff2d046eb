"""A mounted file system, and a line of /etc/fstab."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, boolean, integer, number, optional, readings, text

IMAGES = frozenset({"squashfs", "erofs", "composefs"})  # file systems that are written once, and so always full


@record
class Mount(Reported):
    """A mounted file system; sizes are None where it did not answer."""

    path = Field(text)
    type = Field(text)
    source = Field(text)
    options = Field(text)
    alive = Field(text, where="whether it answers")
    total_kib = Field(optional(integer))
    free_kib = Field(optional(integer))
    inodes = Field(optional(integer))
    inodes_free = Field(optional(integer))
    read_s = Field(optional(number))  # until its sizes and its folder were read
    due = Field(optional(boolean), "is_due")  # by fstab, a unit of systemd's or the policy; None in older recordings
    automatic = Field(optional(boolean), "is_automatic")

    @property
    def is_of_a_walk(self) -> bool:
        """Whether autofs mounted it on access, and nothing else requires it."""
        return bool(self.automatic) and not self.due

    @property
    def is_lasting(self) -> bool:
        """Whether it is mounted even if nobody uses it; true if that is unknown."""
        return not any(readings(self, "is_of_a_walk")[0].values())

    @property
    def image_type(self) -> str:
        """The type of a file system that can only be read; empty for any other, and if it is unknown.

        composefs is the source of a mount of type overlay.
        """
        return next((name for name in readings(self, "type", "source")[0].values() if name in IMAGES), "")

    @property
    def label(self) -> str:
        """Where it is mounted."""
        return self.path


@record
class FstabEntry(Reported):
    """A line of /etc/fstab; `mounted` is whether anything is mounted there, of whatever type."""

    path = Field(text)
    type = Field(text)
    options = Field(text)
    mounted = Field(boolean)

    @property
    def is_due(self) -> bool:
        """Whether it should be mounted at boot."""
        return self.path.startswith("/") and self.type != "swap" and "noauto" not in self.options.split(",")
