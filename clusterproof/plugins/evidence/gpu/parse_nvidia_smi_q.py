"""`nvidia-smi -q`: sections by indentation, one block for each GPU; all sections, or those that -d chose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.evidence.gpu.parse_nvidia_values import gpu_of
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import address, cuda, error, processes
from clusterproof.plugins.evidence.parsing import CaptureError, Form

MAX_GPUS = 128  # of a node; none has more than 16
_MAX_WORDS = 5_000  # of one GPU; it has 300
_TITLE = "NVSMI LOG"
_GPU = re.compile(r"GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])")


@dataclass(slots=True)
class Block:
    """What was printed of one GPU, or before the first: each word with the path of its headings, in small letters."""

    pci: str = ""
    pairs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def words(self) -> Mapping[str, str]:
        """The words by their paths; of those that come several times the first."""
        return dict(reversed(self.pairs))


def collector_of(head: Mapping[str, str], gpus: Iterable[Block]) -> dict[str, object]:
    """The collector `nvml` out of what stands before the first GPU, and of the GPUs' blocks."""
    blocks = list(gpus)[:MAX_GPUS]
    attached = next((head[key] for key in ("attached gpus", "attached_gpus") if key in head), "").strip()
    count = int(attached) if re.fullmatch(r"\d{1,4}", attached) else None
    driver = next((head[key] for key in ("driver version", "driver_version") if key in head), "").strip()
    version = cuda(next((head[key] for key in ("cuda version", "cuda_version") if key in head), "").strip())
    data: dict[str, object] = {
        "init": None,
        "gpus": [_gpu(block, place, count == len(blocks)) for place, block in enumerate(blocks)],
    }
    if count is not None and count <= MAX_GPUS:
        data["count"] = count
    if driver and not error(driver):
        data["driver"] = driver[:40]
    if version is not None:
        data["cuda"] = version
    return data


def _gpu(block: Block, place: int, is_complete: bool) -> dict[str, object]:
    """One GPU. Its number is its place where all are listed, else the number of its device file, if known."""
    words = block.words
    data: dict[str, object] = gpu_of(words)
    pci = address(block.pci)
    if pci:
        data["pci"] = pci
    minor = next((words[key] for key in ("minor number", "minor_number") if key in words), "").strip()
    if is_complete:
        data["index"] = place
    elif re.fullmatch(r"\d{1,3}", minor):
        data["index"] = int(minor)
    running = None if data["lost"] else processes(block.pairs)
    if running is not None:
        data["processes"] = running
    return data


def _recognises(text: str) -> bool:
    return _TITLE in text or (" : " in text and any(_GPU.fullmatch(line.strip()) for line in _heads(text)))


def _heads(text: str) -> Iterable[str]:
    """The lines that may name a GPU."""
    return (line for line in text.split("\n") if line.startswith("GPU ") or line.lstrip().startswith("GPU 0"))


def _read(text: str) -> Mapping[str, object]:
    head, gpus = Block(), list[Block]()
    stack: list[tuple[int, str]] = []
    for line in text.split("\n"):
        named = _GPU.fullmatch(line.strip())
        if named:
            gpus.append(Block(named[1]))
            stack.clear()
            continue
        _take(line.expandtabs(), gpus[-1] if gpus else head, stack)
    if not gpus and not head.pairs:
        raise CaptureError("it names no GPU and does not say how many are attached")
    if not gpus and "attached units" in head.words:
        return {}  # -q -u: of the boxes that GPUs once came in
    if not gpus and "attached gpus" not in head.words:
        raise CaptureError("it ends before the first GPU")
    return {"nvml": collector_of(head.words, gpus)}


def _take(line: str, block: Block, stack: list[tuple[int, str]]) -> None:
    """Add a line's word to its block, under the headings that `stack` holds with their indentation."""
    key, colon, word = line.partition(" :")
    key = key.strip()
    if not key or len(block.pairs) >= _MAX_WORDS:
        return
    indent = len(line) - len(line.lstrip())
    while stack and stack[-1][0] >= indent:
        stack.pop()
    stack.append((indent, key.lower()))
    if colon and len(stack) < 10:
        block.pairs.append(("/".join(name for _, name in stack), word.strip()))


FORMS = (
    Form(
        name="nvidia-smi -q",
        recognises=_recognises,
        read=_read,
        rank=80,
        begins=lambda line: _TITLE in line,
    ),
)
