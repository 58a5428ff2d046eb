"""Neuron devices: neuron-ls, as JSON and as a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.evidence.field import MAX_OUTPUT
from clusterproof.plugins.evidence.neuron.facts import entries_of
from clusterproof.plugins.evidence.parsing import CaptureError, Form

MAX_DEVICES = 128

_HEADER = re.compile(r"^\|\s{1,10}NEURON\s{1,10}\|\s{1,10}NEURON\s{1,10}\|", re.MULTILINE)
_TITLES = re.compile(r"^\|\s{1,10}DEVICE\s{1,10}\|\s{1,10}CORES\s{1,10}\|", re.MULTILINE)
_ROW = re.compile(r"^\|\s{1,10}(\d{1,4})\s{1,10}\|\s{1,10}(\d{1,4})\s{1,10}\|.{0,300}\|\s*$", re.MULTILINE)
_BORDER = re.compile(r"^\s{0,8}\+-", re.MULTILINE)

_LISTED = re.compile(r'"neuron_device" ?: ?\d{1,4}\b')  # what neuron-monitor calls so are bytes


def is_json(text: str) -> bool:
    """Whether this is the output of `neuron-ls --json-output`."""
    return bool(_LISTED.search(text[:20_000]))


def read_json(text: str) -> Mapping[str, object]:
    """The collector `neuron_ls`, and devices of the collector `neuron`, without counters. Raises CaptureError."""
    entries = entries_of(text) if len(text) <= MAX_OUTPUT else None
    if entries is None:
        raise CaptureError("the JSON of neuron-ls cannot be read, it may be cut")
    devices = [_device(entry) for entry in entries[:MAX_DEVICES]]
    answer = {"command": "neuron-ls --json-output", "exit": 0, "output": text}
    return {"neuron_ls": answer, **({"neuron": {"devices": devices}} if devices else {})}


def _device(entry: Mapping[str, Any]) -> dict[str, object]:
    """A device; if it is the only one of its node, it has null in place of its links."""
    cores, links = entry.get("nc_count"), entry.get("connected_to")
    return {
        "index": entry["neuron_device"],
        **({"cores": cores} if isinstance(cores, int) else {}),
        **({"connected": links} if isinstance(links, list) else {}),
    }


def is_table(text: str) -> bool:
    """Whether this is the table of neuron-ls."""
    return bool(_HEADER.search(text) and _TITLES.search(text))


def read_table(text: str) -> Mapping[str, object]:
    """The devices of the collector `neuron`, without the processes that use them. Raises CaptureError."""
    rows = list(_ROW.finditer(text))
    devices = [{"index": int(row[1]), "cores": int(row[2])} for row in rows]
    if not devices:
        raise CaptureError("neuron-ls lists no device")
    if not _BORDER.search(text, rows[-1].end()):
        raise CaptureError("the table of neuron-ls has no last line, it may be cut")
    return {"neuron": {"devices": devices[:MAX_DEVICES]}}


# Other messages come from jobs that log in neuron-ls's format.
_FATAL = r"(?:FATA\[\d{4}\] |time=\S{1,60} level=fatal msg=\"?)"
_OWN = r"(?:Failed to discover neuron device|No neuron device|[^\n]{0,200}?Unable to read device information)"
_FAILED = re.compile(rf"\A\s{{0,80}}{_FATAL}[^\n]{{0,200}}?\bneuron\b|^[`*_\"']{{0,4}}{_FATAL}{_OWN}", re.MULTILINE)


def is_failure(text: str) -> bool:
    """Whether the text is an error of neuron-ls in place of its list."""
    return bool(_FAILED.search(text))


def read_failure(text: str) -> Mapping[str, object]:
    """The collector `neuron_ls`, which ended without a list."""
    return {"neuron_ls": {"command": "neuron-ls", "exit": 1, "output": text[:MAX_OUTPUT]}}


FORMS = (
    Form("neuron-ls --json-output", is_json, read_json),
    Form("neuron-ls", is_table, read_table, 40),
    Form("neuron-ls's error", is_failure, read_failure, 30),
)
