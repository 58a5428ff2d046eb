"""`nvidia-smi topo -m`: the matrix of what lies between GPUs, and between them and network devices."""

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
    for cells in lines:
        named = _GPU.fullmatch(cells[0]) if len(cells) > 1 else None
        if named and _CONNECTION.fullmatch(cells[1]):
            rows[int(named[1])] = cells[1:]
    return rows


def _columns(lines: list[list[str]]) -> list[str]:
    """What the columns are of, up to the affinities; a heading may be wrapped. Nothing where it is not understood."""
    headings: list[str] = []
    for line in lines:
        if headings and (not line or _rows([line])):
            break
        if headings or line[:1] == ["GPU0"]:
            headings += line
    names = headings[: headings.index("CPU")] if "CPU" in headings else headings
    return names if all(_GPU.fullmatch(name) or _NIC.fullmatch(name) for name in names) else []


def _connections(row: list[str], columns: list[str]) -> dict[str, str]:
    """What lies between this GPU and each column; nothing where the row was cut, or is not understood."""
    if len(row) < len(columns):
        return {}
    connections = dict(zip(columns, row, strict=False))
    return connections if all(map(_CONNECTION.fullmatch, connections.values())) else {}


def _paths(connections: Mapping[str, str], names: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """How far this GPU is from the others and from network devices: NVLinks say nothing of the bus."""
    gpus: dict[str, str] = {}
    nics: dict[str, str] = {}
    for column, connection in connections.items():
        if connection not in NEAREST_FIRST:
            continue
        gpu = _GPU.fullmatch(column)
        if gpu:
            gpus[f"GPU {gpu[1]}"] = connection
        else:
            nics[names.get(column, column)] = connection
    return {"gpus": gpus, "nics": nics}


def _nvlinks_to(connections: Mapping[str, str]) -> dict[str, int]:
    """Over how many NVLinks this GPU reaches each of the others."""
    return {
        f"GPU {gpu[1]}": int(connection.removeprefix("NV")) if connection.startswith("NV") else 0
        for column, connection in connections.items()
        if (gpu := _GPU.fullmatch(column)) and connection not in ("X", "N/A")
    }


def _is_topo(text: str) -> bool:
    return "GPU0" in text and ("Affinity" in text or "Legend:" in text) and bool(_rows(_lines(text)))


def _read_topo(text: str) -> Mapping[str, object]:
    lines = _lines(text)
    rows, columns = _rows(lines), _columns(lines)
    if not rows:
        raise CaptureError("it has no row of a GPU")
    names = {legend[1]: legend[2] for line in text.split("\n")[:_LINES] if (legend := _LEGEND.match(line))}
    gpus = []
    for number, row in sorted(rows.items()):
        connections = _connections(row, columns)
        gpu: dict[str, object] = {"index": number, "paths": _paths(connections, names)}
        nvlinks_to = _nvlinks_to(connections)
        gpus.append({**gpu, "nvlinks_to": nvlinks_to} if nvlinks_to else gpu)
    nvml: dict[str, object] = {"init": None, "gpus": gpus}
    named = [column for column in columns if _GPU.fullmatch(column)]
    if sorted(rows) == list(range(len(rows))) and len(rows) == len(named or rows):  # fewer where it was cut
        nvml["count"] = len(rows)
    return {"nvml": nvml}


FORMS = (
    Form(
        name="nvidia-smi topo -m",
        recognises=_is_topo,
        read=_read_topo,
        rank=10,
        begins=lambda line: "GPU0" in line and "CPU Affinity" in line,
    ),
)
