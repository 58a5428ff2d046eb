"""`nvidia-smi topo -m`: which GPUs there are, and what lies between each of them and other devices."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.parsing import CaptureError, Form
from clusterproof.plugins.evidence.pci.facts import NEAREST_FIRST

_GPU = re.compile(r"GPU(\d{1,3})")
_NIC = re.compile(r"NIC\d{1,3}|[a-z]\w{0,30}\d")  # its number, or its name as older drivers print it
_LEGEND = re.compile(r"\s{1,8}(NIC\d{1,3}): (\S{1,60})")
_CONNECTION = re.compile(r"X|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|PSB|N/A")
_LINES = 400


def _lines(text: str) -> list[list[str]]:
    return [line[:4000].split() for line in text.split("\n")[:_LINES]]


def _rows(lines: list[list[str]]) -> dict[int, list[str]]:
    """The row of each GPU, by its number: how it is connected to the others."""
    rows: dict[int, list[str]] = {}
    for words in lines:
        named = _GPU.fullmatch(words[0]) if len(words) > 1 else None
        if named and _CONNECTION.fullmatch(words[1]):
            rows[int(named[1])] = words[1:]
    return rows


def _columns(lines: list[list[str]]) -> list[str]:
    """What the columns are of, up to the affinities; a heading may be wrapped. Nothing where it is not understood."""
    words: list[str] = []
    for line in lines:
        if words and (not line or _rows([line])):
            break
        if words or line[:1] == ["GPU0"]:
            words += line
    names = words[: words.index("CPU")] if "CPU" in words else words
    return names if all(_GPU.fullmatch(name) or _NIC.fullmatch(name) for name in names) else []


def _paths(row: list[str], columns: list[str], names: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What lies between this GPU and the others, and network devices: NVLinks say nothing of the bus."""
    if not all(_CONNECTION.fullmatch(way) for way in row[: len(columns)]):
        return {"gpus": {}, "nics": {}}
    ways = [(names.get(column, column), way) for column, way in zip(columns, row, strict=False) if way in NEAREST_FIRST]
    gpus = {f"GPU {name[3:]}": way for name, way in ways if _GPU.fullmatch(name)}
    return {"gpus": gpus, "nics": {name: way for name, way in ways if not _GPU.fullmatch(name)}}


def _is_topo(text: str) -> bool:
    return "GPU0" in text and ("Affinity" in text or "Legend:" in text) and bool(_rows(_lines(text)))


def _read(text: str) -> Mapping[str, object]:
    lines = _lines(text)
    rows, columns = _rows(lines), _columns(lines)
    if not rows:
        raise CaptureError("it has no row of a GPU")
    names = {found[1]: found[2] for line in text.split("\n")[:_LINES] if (found := _LEGEND.match(line))}
    gpus = [{"index": number, "paths": _paths(rows[number], columns, names)} for number in sorted(rows)]
    data: dict[str, object] = {"init": None, "gpus": gpus}
    if sorted(rows) == list(range(len(rows))):
        data["count"] = len(rows)
    return {"nvml": data}


FORMS = (
    Form(
        name="nvidia-smi topo -m",
        recognises=_is_topo,
        read=_read,
        rank=10,
        begins=lambda line: "GPU0" in line and "CPU Affinity" in line,
    ),
)
