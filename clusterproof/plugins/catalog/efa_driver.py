"""What EFA's driver knows of the rate of a port."""

from __future__ import annotations

from functools import cache

from clusterproof.plugins.catalog.rows import build, document
from clusterproof.plugins.core.record import record

FILE = "efa_driver.toml"


@record
class PortRate:
    """Which rates (Gb/s) the driver has words for, and what it says where it does not know."""

    since: str  # the first version that knows
    unknown_gbps: int
    known_gbps: tuple[int, ...]
    source: str

    def reported_gbps(self, gbps: float) -> int:
        """What the driver says of a device of that rate: 30 of one of 35 Gb/s."""
        return next((known for known in sorted(self.known_gbps, reverse=True) if known <= gbps), min(self.known_gbps))


@cache
def port_rate() -> PortRate:
    """The table of efa_driver.toml. Raises CatalogError."""
    data = document(FILE)
    return build(PortRate, data["port_rate"], FILE, data["sources"])
