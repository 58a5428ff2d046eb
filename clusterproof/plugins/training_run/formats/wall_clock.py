"""Step times by the timestamps of log lines, also where that clock is set forward an hour, as each spring."""

from __future__ import annotations

from dataclasses import dataclass
from time import gmtime

HOUR_S, DAY_S = 3600, 86_400
SET_IN, SUNDAY, SET_AT = (3, 4, 9, 10, 11), 6, (1, 2, 3)  # months, north and south; the day; the hours that are skipped
AS_USUAL_S = 5.0  # more or less


@dataclass
class WallClock:
    """The timestamps of one rank or launcher."""

    step_s: float | None = None

    def lasted(self, last_time: float, time_s: float, count: int) -> float:
        """How long so many steps took: an hour less where the clock was set."""
        seconds = time_s - last_time
        as_usual = self.step_s is not None and abs(seconds - HOUR_S - self.step_s * count) <= AS_USUAL_S
        if as_usual and _may_be_set(last_time, time_s):
            return seconds - HOUR_S
        self.step_s = seconds / count
        return seconds


def _may_be_set(last_time: float, time_s: float) -> bool:
    """Whether clocks that are set forward for summer may have been between these two."""
    day = gmtime(time_s)
    midnight = time_s // DAY_S * DAY_S
    hours = (midnight + HOUR_S * hour for hour in SET_AT)
    return day.tm_mon in SET_IN and day.tm_wday == SUNDAY and any(last_time < at <= time_s - HOUR_S for at in hours)
