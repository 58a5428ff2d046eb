"""The table of `dcgmi diag`, row by row."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.evidence.values import gpus_in, short

_SECTION = re.compile(r"[|+]-----\s{1,4}([^|]{1,40}?)\s{1,4}-{2,40}")
_END = re.compile(r"\+-{5,100}\+-{5,100}\+\s*\Z")
_ROW = re.compile(r"\|([^|]{1,80})\|(.{0,400})\|\s*\Z")
_RESULT = re.compile(
    r"(?:GPU\s?(?P<gpu>\d{1,3}):\s{0,4})?(?P<word>Pass|Fail|Warn|Skip|Not Run)\b"
    r"(?:\s{0,4}-\s{0,4}(?P<more>.{0,200}))?\s*\Z",
    re.IGNORECASE,
)
_NOTE = re.compile(r"(Warning|Error|Info)\b")
_GPUS = re.compile(r"\s*(?:All|GPUs?:?[\s\d,]{1,200})\s*\Z", re.IGNORECASE)
BAD = ("fail", "warn")


@dataclass
class Table:
    """What the rows so far contain. A row is a test, a further result of the last test, or a note on it.

    Results read `Pass - All`, `Fail - GPU: 3` or, since DCGM 4, `GPU3: Fail`. Notes are wrapped in the middle of words.
    """

    version: str = ""
    tests: list[dict[str, Any]] = field(default_factory=list)
    has_ended: bool = False  # the line that closes the table was the last
    _category: str = ""
    _note: dict[str, Any] | None = None

    def take(self, line: str) -> None:
        """Read one line."""
        section, row = _SECTION.match(line), _ROW.match(line)
        if section or row:
            self.has_ended = False
        if section:
            self._category, self._note = section[1], None
        elif row:
            self._row(row[1].strip(), row[2][1:].rstrip())
        elif _END.match(line):
            self.has_ended = bool(self.tests)

    def _row(self, name: str, cell: str) -> None:
        if name == "DCGM Version":
            self.version = short(cell.strip())
        elif kind := _NOTE.match(name):
            self._note = {"text": short(cell), "severity": None}
            if kind[1] != "Info":
                self._annotated()["messages"].append(self._note)
        elif found := _RESULT.match(cell.strip()):
            self._result(name, found)
        elif not name and self._note is not None:
            self._note["text"] = short(self._note["text"] + cell)

    def _result(self, name: str, found: re.Match[str]) -> None:
        if name:
            self.tests.append({"name": short(name), "category": self._category, "results": []})
        elif not self.tests:
            return
        more = found["more"] or ""
        is_list = bool(_GPUS.match(more))
        self._note = None
        self.tests[-1]["results"].append(
            {
                "gpu": found["gpu"] or gpus_in(more if is_list else more.partition(":")[0]),
                "status": found["word"].lower(),
                "messages": [{"text": short(more), "severity": None}] if more and not is_list else [],
            }
        )

    def _annotated(self) -> dict[str, Any]:
        """The result that a warning is about: the last that is not good; before any test it is a failure by itself."""
        if not self.tests:
            self.tests.append(
                {
                    "name": self._category or "dcgmi diag",
                    "category": self._category,
                    "results": [{"gpu": "", "status": "fail", "messages": []}],
                }
            )
        results = self.tests[-1]["results"]
        return next((result for result in reversed(results) if result["status"] in BAD), results[-1])
