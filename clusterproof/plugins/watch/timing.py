"""How long a state must last before a watch reports it: numbers of thresholds.toml, or a site's own."""

from __future__ import annotations

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import record

TABLE = "watch"
MAX_TICKS = 1_000  # kept for each state


class InvalidTiming(ClusterproofError, ValueError):  # noqa: N818 - an outcome of reading a policy
    """Numbers with which nothing would ever be reported; the message says which."""


@record
class Timing:
    """How long states must last before they are reported; thresholds.toml explains each number."""

    window_ticks: int
    opens_ticks: int
    slowdown_opens_ticks: int
    closes_ticks: int
    flaps_times: int
    flaps_within_s: float
    silent_ticks: int
    clock_step_s: float

    @staticmethod
    def of(catalog: Catalog) -> Timing:
        """The timing with a site's numbers. Raises InvalidTiming."""
        opens = ("opens_ticks", "slowdown_opens_ticks")
        ticks = {name: _whole(catalog, name) for name in ("window_ticks", *opens, "closes_ticks")}
        for name in opens:
            if ticks[name] > ticks["window_ticks"]:
                raise InvalidTiming(
                    f"{TABLE}.{name} is {ticks[name]}; "
                    f"expected at most {TABLE}.window_ticks, which is {ticks['window_ticks']}"
                )
        return Timing(
            **ticks,
            flaps_times=_whole(catalog, "flaps_times"),
            flaps_within_s=catalog.threshold(f"{TABLE}.flaps_within_s"),
            silent_ticks=_whole(catalog, "silent_ticks"),
            clock_step_s=catalog.threshold(f"{TABLE}.clock_step_s"),
        )


def _whole(catalog: Catalog, name: str) -> int:
    value = catalog.threshold(f"{TABLE}.{name}")
    if not 1 <= value <= MAX_TICKS or value != int(value):
        raise InvalidTiming(f"{TABLE}.{name} is {value:g}; expected a whole number from 1 to {MAX_TICKS:,}")
    return int(value)


TIMING = Timing.of(PACKAGED)
