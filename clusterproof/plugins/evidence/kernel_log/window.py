"""How far back the kernel log is evaluated: `--since`."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
EXPECTED = "boot, a time span such as 90m, 24h or 2d, or a time such as 2026-03-01T08:00Z"
CALENDAR_S = 1e9  # no node is up for 31 years: a time beyond that counts from 1970, not from boot

_SPAN = Pattern(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", re.ASCII)


@record
class Window:
    """The period that counts: the last `last_s` seconds, or from `moment` on (seconds since 1970); else this boot."""

    last_s: float | None = None
    moment: float | None = None
    words: str = "boot"

    @property
    def is_boot(self) -> bool:
        """Whether the whole boot counts."""
        return self.last_s is None and self.moment is None

    @property
    def description(self) -> str:
        """`in the last 24h`, `since 2026-03-01T08:00Z`."""
        return f"in the last {self.words}" if self.last_s is not None else f"since {self.words}"

    def begins(self, uptime_s: float, booted: float) -> float:
        """When it begins on a node, in seconds since its boot; `booted` is by the node's own clock, like the log."""
        if self.last_s is not None:
            return uptime_s - self.last_s
        return 0.0 if self.moment is None else self.moment - booted


BOOT = Window()


def window(since: str) -> Window:
    """The window that `--since` asks for. Raises ValueError with what was expected."""
    if since == BOOT.words:
        return BOOT
    span = _SPAN.fullmatch(since)
    if span and float(span[1]) > 0:
        return Window(last_s=float(span[1]) * SECONDS[span[2]], words=since)
    from datetime import datetime, timezone  # imported here, as few runs ask for a moment

    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", since))
        local = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return Window(moment=local.timestamp(), words=since)
    except (ValueError, OverflowError):
        raise ValueError(f"--since is {since[:60]!r}; expected {EXPECTED}") from None


def since_boot(seconds: float, booted: float) -> float:
    """A log's time, by either clock, in seconds since boot."""
    return seconds - booted if seconds >= CALENDAR_S else seconds
