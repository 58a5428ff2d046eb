"""Step durations from the times of log lines, corrected for the switch to daylight saving time."""

from __future__ import annotations

from dataclasses import dataclass
from time import gmtime

HOUR_S, DAY_S = 3600, 86_400
SET_IN, SUNDAY, SET_AT = (3, 4, 9, 10, 11), 6, (1, 2, 3)  # months, north and south; the day; the hours that are skipped
AS_USUAL_S = 5.0  # tolerance


@dataclass
class WallClock:
    """The clock of one printer."""

    step_s: float | None = None

    def lasted(self, last_time: float, time_s: float, count: int) -> float:
        """How long so many steps took: an hour less if the clock was set forward."""
        seconds = time_s - last_time
        as_usual = self.step_s is not None and abs(seconds - HOUR_S - self.step_s * count) <= AS_USUAL_S
        if as_usual and _may_be_set(last_time, time_s):
            return seconds - HOUR_S
        self.step_s = seconds / count
        return seconds


def _may_be_set(last_time: float, time_s: float) -> bool:
    """Whether daylight saving time may have begun between these two."""
    day = gmtime(time_s)
    midnight = time_s // DAY_S * DAY_S
    hours = (midnight + HOUR_S * hour for hour in SET_AT)
    return day.tm_mon in SET_IN and day.tm_wday == SUNDAY and any(last_time < at <= time_s - HOUR_S for at in hours)
