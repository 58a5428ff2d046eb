"""How fast a node writes and reads a file, as fio measured it."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import Field, Reported, number, read, table, text

DIRECTIONS = ("write", "read")


@record
class FsBandwidth(Reported):
    """One run in one folder."""

    folder = Field(text)

    @property
    def gb_per_s(self) -> Mapping[str, float]:
        """10^9 bytes a second of `write` and `read`. Raises Incomplete."""
        return {direction: self._speed(direction) for direction in DIRECTIONS}

    def _speed(self, direction: str) -> float:
        run = read(self.data.get(direction), table, f"fs_bandwidth: {direction}")
        size, seconds = (read(run.get(key), number, f"fs_bandwidth: {direction} {key}") for key in ("bytes", "seconds"))
        if not (size > 0 and seconds > 0):
            raise Incomplete(f"fs_bandwidth: {direction} of {size:.0f} bytes in {seconds:g} s; expected more of both")
        return size / seconds / 1e9
