"""The log of HyperPod's deep health checks on a node."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.field import Field, Reported, boolean, read, text


@record
class LogLine:
    """A line that a deep health check logged on its node."""

    time: str  # as the log has it: `2024-08-20T21:53:58Z`
    level: str  # in lower case
    text: str

    @property
    def logged(self) -> float:
        """Its time in seconds since 1970. Raises Incomplete."""
        try:
            return datetime.strptime(f"{self.time}+0000", "%Y-%m-%dT%H:%M:%SZ%z").timestamp()
        except ValueError:
            raise Incomplete(
                f"the time {self.time[:40]!r} in the log of deep health checks is in no known form"
            ) from None

    @property
    def requires(self) -> str:
        """What the summary of DCGM's diagnostics requires: `replacement`, `reboot`, or nothing."""
        return next((action for action, words in _REQUIRED.items() if words.search(self.text)), "")


@record
class DeepHealthCheckLog(Reported):
    """The end of HyperPod's log of deep health checks on a node."""

    text = Field(text, "log")
    is_cut = Field(boolean)  # there are lines before

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """Those in a known form, as lines of text or JSON."""
        return tuple(_log_lines(self.text))


_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\s{1,8}([A-Za-z]{1,10})\s{1,8}(\S.{0,4000})")
_REQUIRED = {
    "replacement": re.compile(r"\breplacementRequired: ?true\b"),
    "reboot": re.compile(r"\brebootRequired: ?true\b"),
}


def _log_lines(log: str) -> Iterator[LogLine]:
    for line in log.splitlines():
        match = _LINE.match(line)
        if match:
            yield LogLine(match[1], match[2].lower(), match[3].rstrip())
        elif line.startswith("{"):
            try:
                entry = json.loads(line)
                yield LogLine(*(read(entry.get(key), text, key) for key in ("ts", "level", "msg")))
            except (ValueError, RecursionError, Incomplete):
                continue


deep_health_check_log = collected_as("deep_health_check_log", DeepHealthCheckLog)
