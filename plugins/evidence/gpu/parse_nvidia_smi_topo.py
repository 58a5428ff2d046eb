"""`nvidia-smi topo -m`: which GPUs there are, and by how many NVLinks each two are connected."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.form import CaptureError, Form

_GPU = re.compile(r"GPU(\d{1,3})")
_CONNECTION = re.compile(r"X|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|PSB|N/A")
_LINES = 400


def _rows(text: str) -> dict[int, list[str]]:
    """The row of each GPU, by its number: how it is connected to the others."""
    rows: dict[int, list[str]] = {}
    for line in text.split("\n")[:_LINES]:
        words = line[:4000].split()
        named = _GPU.fullmatch(words[0]) if len(words) > 1 else None
        if named and _CONNECTION.fullmatch(words[1]):
            rows[int(named[1])] = words[1:]
    return rows


def _read(text: str) -> Mapping[str, object]:
    rows = _rows(text)
    if not rows:
        raise CaptureError("it has no row of a GPU")
    data: dict[str, object] = {"init": None, "gpus": [{"index": number} for number in sorted(rows)]}
    if sorted(rows) == list(range(len(rows))):
        data["count"] = len(rows)
    return {"nvml": data}


FORMS = (
    Form(
        name="nvidia-smi topo -m",
        recognises=lambda text: "GPU0" in text and ("Affinity" in text or "Legend:" in text) and bool(_rows(text)),
        read=_read,
        rank=10,
        begins=lambda line: "GPU0" in line and "CPU Affinity" in line,
    ),
)
