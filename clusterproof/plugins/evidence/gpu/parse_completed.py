"""What a capture shows of GPUs once every file is read: their numbers, and those that no file describes."""

from __future__ import annotations

from typing import Any

MAX_GPUS = 128  # that a node may be said to have; none has more than 16


def completed(nvml: object) -> object:
    """The collector `nvml` with an entry for each GPU that was counted, in the order of their numbers.

    A GPU that is counted and not described has an entry with nothing in it: what is asked of it is incomplete.
    """
    if not isinstance(nvml, dict) or ("gpus" not in nvml and "count" not in nvml):
        return nvml
    data = nvml.get("gpus", [])
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        return nvml
    count = nvml.get("count")
    missing = max(0, count - len(data)) if isinstance(count, int) and count <= MAX_GPUS else 0
    gpus = [*data, *({} for _ in range(missing))]
    if len(gpus) == count and (not missing or all("index" in entry for entry in data)):
        gpus = _numbered(gpus)
    return {**nvml, "gpus": sorted(gpus, key=_place)} if gpus or "gpus" in nvml else nvml


def _numbered(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """GPUs of which all are there: those without a number have the ones that are left, by their PCI addresses."""
    taken = {entry.get("index") for entry in gpus}
    left = [number for number in range(len(gpus)) if number not in taken]
    named = [entry for entry in gpus if "index" in entry]
    nameless = sorted((entry for entry in gpus if "index" not in entry), key=_place)
    numbered = [{"index": number, **entry} for number, entry in zip(left, nameless)]  # noqa: B905 - one may be twice
    return [*named, *numbered, *nameless[len(left) :]]


def _place(entry: dict[str, Any]) -> tuple[bool, int, bool, str]:
    index, pci = entry.get("index"), entry.get("pci")
    return (not isinstance(index, int), index if isinstance(index, int) else 0, not pci, str(pci))
