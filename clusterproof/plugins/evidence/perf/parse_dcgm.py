"""What DCGM's command line prints: `dcgmi diag`, with and without -j, of DCGM 2 to 4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.evidence.parsing import (
    CaptureError,
    Form,
    document_in,
    exit_status,
    gpus_in,
    objects,
    short,
    whole_in,
)

_SECTION = re.compile(r"[|+]-----\s{1,4}([^|]{1,40}?)\s{1,4}-{2,40}")
_END = re.compile(r"\+-{5,100}\+-{5,100}\+\s*\Z")
_ROW = re.compile(r"\|([^|]{1,80})\|(.{0,400})\|\s*\Z")
_ENTITY = r"(?P<kind>[A-Za-z][A-Za-z_]{1,11}?)\s?(?P<number>\d{1,3})"  # GPU0, CPU0, NvSwitch0
_RESULT = re.compile(
    rf"(?:{_ENTITY}:\s{{0,4}})?(?P<word>Pass|Fail|Warn|Skip|Not Run)\b"
    r"(?:\s{0,4}-\s{0,4}(?P<more>.{0,200}))?\s*\Z",
    re.IGNORECASE,
)
_NOTE = re.compile(rf"(Warning|Error|Info)\b(?::\s{{0,4}}{_ENTITY}\Z)?")
_GPUS = re.compile(r"\s*(?:All\s*|GPUs?:?[\s\d,]+)\Z", re.IGNORECASE)
BAD = ("fail", "warn")
MARGIN = 2  # blanks after the text of a full cell


@dataclass
class Table:
    """The rows parsed so far. A row is a test, a further result of the last test, or a note on it.

    Results read `Pass - All`, `Fail - GPU: 3` or, since DCGM 4, `GPU3: Fail`. Notes are wrapped in the middle of words:
    a line of a note that does not fill its cell ended with a blank.
    """

    version: str = ""
    gpus: int | None = None  # number of GPUs on which it ran
    tests: list[dict[str, Any]] = field(default_factory=list)
    has_ended: bool = False  # whether the last line was the one that closes the table
    _category: str = ""
    _note: dict[str, Any] | None = None
    _between: str = ""  # the last row of a note, and the next one

    def take(self, line: str) -> None:
        """Read one line."""
        section, row = _SECTION.match(line), _ROW.match(line)
        if section or row:
            self.has_ended = False
        if section:
            self._category, self._note = section[1], None
        elif row:
            self._row(row[1].strip(), row[2][1:].rstrip(), is_full=len(row[2].rstrip()) >= len(row[2]) - MARGIN)
        elif _END.match(line):
            self.has_ended = bool(self.tests)

    def _row(self, name: str, cell: str, *, is_full: bool) -> None:
        if name == "DCGM Version":
            self.version = short(cell.strip())
        elif name == "GPU Device IDs Detected":
            self.gpus = len(cell.split(","))
        elif kind := _NOTE.match(name):
            self._note = {"text": short(cell), "severity": None}
            if kind[1] != "Info":
                self._annotated(_called(kind))["messages"].append(self._note)
        elif result := _RESULT.match(cell.strip()):
            self._result(name, result)
        elif not name and self._note is not None:
            self._note["text"] = short(self._note["text"] + self._between + cell)
        self._between = "" if is_full else " "

    def _result(self, name: str, match: re.Match[str]) -> None:
        if name:
            self.tests.append({"name": short(name), "category": self._category, "results": []})
        elif not self.tests:
            return
        more = match["more"] or ""
        is_list = bool(_GPUS.match(more))
        self._note = None
        results, status = self.tests[-1]["results"], match["word"].lower()
        if results and (results[0]["gpu"], results[0]["status"], status) == ("", "warn", "fail"):
            status = "warn"  # DCGM 4 says so of the whole test only, and calls its entities failed
        results.append(
            {
                "gpu": _called(match) or gpus_in(more if is_list else more.partition(":")[0]),
                "status": status,
                "messages": [{"text": short(more), "severity": None}] if more and not is_list else [],
            }
        )

    def _annotated(self, entity: str) -> dict[str, Any]:
        """The result that a warning is about: of the entity that it names, or the last one that is not good; before any
        test, a failure by itself.
        """
        if not self.tests:
            self.tests.append(
                {
                    "name": self._category or "dcgmi diag",
                    "category": self._category,
                    "results": [{"gpu": "", "status": "fail", "messages": []}],
                }
            )
        results: list[dict[str, Any]] = self.tests[-1]["results"]
        named = [result for result in results if entity and result["gpu"] == entity]
        bad = [result for result in results if result["status"] in BAD]
        return (named or bad or results)[-1]


def _called(match: re.Match[str]) -> str:
    """The entity that a row of DCGM 4 names, as in the JSON: `3` for a GPU, `CPU 0`; empty where it names none."""
    if not match["kind"]:
        return ""
    return match["number"] if match["kind"].upper() == "GPU" else f"{match['kind']} {match['number']}"


MAX_TESTS = 256
MAX_RESULTS = 1024  # of one test
MAX_MESSAGES = 16  # of one result

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # DCGM 4, and before
NO_GPU = -1  # in place of a GPU's number
STATUSES = ("pass", "fail", "warn", "skip", "not run")  # words of dcgmi in every version

_HEADER = re.compile(r"^\|\s{0,4}Diagnostic\s{1,60}\|\s{0,4}Result", re.MULTILINE)
_PART = re.compile(
    r"^\+-----\s{1,4}(?:Deployment|Integration|Hardware|Stress)\s{1,4}-{2,40}\+"
    r"|^\| (?:PCIe|GPU Memory|Pulse Test|Memory Bandwidth|Memtest|(?:SM|Targeted) (?:Stress|Power))\s{1,24}\| "
    r"(?:Pass|Fail|Warn)\b",
    re.MULTILINE,
)


def is_json(text: str) -> bool:
    """Whether this is the JSON of `dcgmi diag -j`."""
    return any(f'"{root}"' in text[:20_000] for root in ROOTS)


def read_json(text: str) -> Mapping[str, object]:
    """The collector `dcgm_diag`; for cut JSON, that it is cut and which results it has. Raises CaptureError."""
    try:
        document = document_in(text)
    except CaptureError:
        return diag_log(text, "", _of_cut(text), is_complete=False)  # a cut log is not an absent log
    root = _root(document)
    if root is None:
        raise CaptureError(f"no object {ROOTS[0]!r}; expected what dcgmi diag -j prints")
    metadata = document.get("metadata")
    version = root.get("version") or (metadata.get("version") if isinstance(metadata, dict) else "")
    tests = list(_tests(root))
    devices = [result["gpu"] for test in tests for result in test["results"]]
    named = {number for device in devices if device[:1].isdecimal() for number in device.split(", ")}
    ids = document.get("GPU Device IDs")  # since DCGM 3.3, whose tests of the deployment name only a GPU that fails
    count = max(len(named), len(ids) if isinstance(ids, list) else 0)
    return diag_log(text, short(version), tests, error=short(root.get("runtime_error")), gpus=count or None)


def _root(document: Mapping[str, Any]) -> dict[str, Any] | None:
    return next((document[name] for name in ROOTS if isinstance(document.get(name), dict)), None)


def _of_cut(text: str) -> list[dict[str, Any]]:
    """The tests in cut JSON that have results."""
    try:
        return [test for test in _tests(_root(whole_in(text)) or {}) if test["results"]]
    except CaptureError:
        return []


def is_table(text: str) -> bool:
    """Whether this is the table of `dcgmi diag`, or a part of it."""
    return bool(_HEADER.search(text) or _PART.search(text))


def read_table(text: str) -> Mapping[str, object]:
    """The collector `dcgm_diag`."""
    table = Table()
    for line in text.split("\n"):
        table.take(line)
    return diag_log(text, table.version, table.tests, is_complete=table.has_ended, gpus=table.gpus)


_REFUSED = re.compile(
    r"^Error: ((?:Unable to complete diagnostic|Diagnostic can|Diagnostic could not be run)\b.{0,250})$", re.MULTILINE
)


def is_refusal(text: str) -> bool:
    """Whether the text is an error of `dcgmi diag` in place of its table."""
    return bool(_REFUSED.search(text)) and not is_json(text)


def read_refusal(text: str) -> Mapping[str, object]:
    """The collector `dcgm_diag`, with a run that did not take place. Raises CaptureError."""
    refusal = _REFUSED.search(text)
    if not refusal:
        raise CaptureError("dcgmi diag does not say why it could not run")
    return diag_log(text, "", [], is_complete=False, error=short(refusal[1]))


def diag_log(
    text: str,
    version: str,
    tests: list[dict[str, Any]],
    *,
    is_complete: bool = True,
    error: str = "",
    gpus: int | None = None,
) -> dict[str, object]:
    """The collector `dcgm_diag` with one run, bounded; its exit status is in the text, if a person saved it there."""
    for test in tests:
        test["results"] = test["results"][:MAX_RESULTS]
        for result in test["results"]:
            result["messages"] = result["messages"][:MAX_MESSAGES]
    diag = {
        "version": version,
        "exit": exit_status(text),
        "complete": is_complete,
        "runtime_error": error,
        "gpus": gpus,
    }
    return {"dcgm_diag": {"logs": [{**diag, "tests": tests[:MAX_TESTS]}]}}


def _tests(root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All tests; DCGM may have null between them."""
    for category in [*objects(root.get("test_categories")), {"tests": root.get("tests")}]:
        for test in objects(category.get("tests")):
            results = [_result(result) for result in objects(test.get("results"))]
            results += _of_whole(test.get("test_summary"), results)
            yield {"name": short(test.get("name")), "category": short(category.get("category")), "results": results}


def _of_whole(summary: object, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What DCGM 4 says of a test as a whole, unless its entities say the same: some errors are of none of them."""
    if not isinstance(summary, dict):
        return []
    whole = _result(summary)
    reported = [message for result in results for message in result["messages"]]
    whole["messages"] = [message for message in whole["messages"] if message not in reported]
    return [whole] if whole["messages"] or all(result["status"] != whole["status"] for result in results) else []


def _result(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One result: DCGM 4 names an entity, which may be a CPU; DCGM 3.3 has `gpu_id`, earlier ones `gpu_ids`: a number,
    or a list as text.
    """
    named = [entry[key] for key in ("gpu_ids", "gpu_id", "entity_id") if key in entry and entry[key] != NO_GPU]
    entity, kind = named[0] if named else "", entry.get("entity_group", "GPU")
    warnings = entry.get("warnings")
    warnings = [warnings] if isinstance(warnings, str) and warnings else warnings  # before DCGM 3.3
    word = short(entry.get("status")).strip().lower().replace("_", " ")
    return {
        "gpu": gpus_in(entity) if kind == "GPU" else short(f"{kind} {entity}"),
        "status": word if word in STATUSES else "unknown",
        "messages": [_message(warning) for warning in (warnings if isinstance(warnings, list) else [])],
    }


def _message(warning: object) -> dict[str, object]:
    if not isinstance(warning, dict):
        return {"text": short(warning), "severity": None}
    severity = warning.get("error_severity")
    words = warning.get("warning", warning.get("warnings"))  # the latter in DCGM 3.3's tests of the deployment
    return {"text": short(words), "severity": severity if type(severity) is int else None}


FORMS = (
    Form("dcgmi diag -j", is_json, read_json),
    Form("dcgmi diag", is_table, read_table),
    Form("dcgmi diag's error", is_refusal, read_refusal),
)
