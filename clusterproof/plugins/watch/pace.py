"""The numbers that decide when something is said: the catalogue's, and a site's own in their place."""

from __future__ import annotations

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import record

TABLE = "watch"
MAX_TICKS = 1_000  # that are kept of each state


class WrongPace(ClusterproofError, ValueError):  # noqa: N818 - an outcome of reading a policy
    """Numbers by which nothing would ever be said; the message says which."""


@record
class Pace:
    """How often something must hold before it is said; thresholds.toml says what each number is."""

    window_ticks: int
    opens_ticks: int
    closes_ticks: int
    flaps_times: int
    flaps_within_s: float
    silent_ticks: int
    clock_step_s: float

    @staticmethod
    def of(catalog: Catalog) -> Pace:
        """The pace that a site's numbers set. Raises WrongPace."""
        ticks = {name: _whole(catalog, name) for name in ("window_ticks", "opens_ticks", "closes_ticks")}
        if ticks["opens_ticks"] > ticks["window_ticks"]:
            raise WrongPace(
                f"{TABLE}.opens_ticks is {ticks['opens_ticks']}; "
                f"expected at most {TABLE}.window_ticks, which is {ticks['window_ticks']}"
            )
        return Pace(
            **ticks,
            flaps_times=_whole(catalog, "flaps_times"),
            flaps_within_s=catalog.threshold(f"{TABLE}.flaps_within_s"),
            silent_ticks=_whole(catalog, "silent_ticks"),
            clock_step_s=catalog.threshold(f"{TABLE}.clock_step_s"),
        )


def _whole(catalog: Catalog, name: str) -> int:
    value = catalog.threshold(f"{TABLE}.{name}")
    if not 1 <= value <= MAX_TICKS or value != int(value):
        raise WrongPace(f"{TABLE}.{name} is {value:g}; expected a whole number from 1 to {MAX_TICKS:,}")
    return int(value)


PACE = Pace.of(PACKAGED)
