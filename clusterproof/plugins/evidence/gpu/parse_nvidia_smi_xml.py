"""`nvidia-smi -q -x`: the same in XML, each GPU an element."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import ParseError, XMLParser

from clusterproof.plugins.evidence.gpu.parse_nvidia_smi_q import MAX_GPUS, Block, collector_of
from clusterproof.plugins.evidence.parsing import CaptureError, Form

_ROOT, _END = "<nvidia_smi_log", "</nvidia_smi_log>"
_MAX_DEPTH = 20
_STEP = 1024 * 1024  # characters that are given to the parser at once
_MAX_WORDS = 20_000  # of one GPU; with all supported clocks it has a few thousand


def _read(text: str) -> Mapping[str, object]:
    """Every GPU whose element is whole. What stands before the root is left out: a DTD never meets the parser."""
    start = text.find(_ROOT)
    end = text.find(_END, start)
    reading = _Reading()
    broken = reading.read(text[start : end + len(_END) if end >= 0 else len(text)])
    if not reading.gpus and "attached_gpus" not in reading.head.words:
        raise CaptureError(f"it has no whole GPU{': ' + broken if broken else ''}")
    return {"nvml": collector_of(reading.head.words, reading.gpus)}


class _Reading:
    """What the parser reports to, element by element: the blocks so far, and where in the document it is."""

    def __init__(self) -> None:
        self.head = self.current = Block()
        self.gpus: list[Block] = []
        self.path: list[str] = []
        self.text: list[str] | None = None  # of the element that has just begun; None where it has elements in it

    def read(self, document: str) -> str:
        """Read all blocks; what is wrong with the document, else empty."""
        parser = XMLParser(target=self)  # noqa: S314 - no DTD ever reaches it
        try:
            for start in range(0, len(document), _STEP):
                parser.feed(document[start : start + _STEP])
            parser.close()
        except ParseError as problem:
            return str(problem)
        return ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        if len(self.path) >= _MAX_DEPTH:
            raise ParseError("its elements are nested too deeply")
        self.path.append(tag.lower())
        self.text = []
        if self.path[1:] == ["gpu"]:
            self.current = Block(attributes.get("id", ""))

    def data(self, text: str) -> None:
        """Text of the innermost element."""
        if self.text is not None:
            self.text.append(text)

    def end(self, _tag: str) -> None:
        """An element ends."""
        if self.path[1:] == ["gpu"]:
            self.gpus += [self.current] if len(self.gpus) < MAX_GPUS else []
            self.current = self.head
        elif self.text is not None and len(self.current.pairs) < _MAX_WORDS:
            below = self.path[1:] if self.current is self.head else self.path[2:]
            _take(self.current, "/".join(below), "".join(self.text).strip())
        self.path.pop()
        self.text = None

    def close(self) -> None:
        """The document ends."""


def _take(block: Block, path: str, word: str) -> None:
    if "supported_clocks/" not in path:
        block.pairs.append((path, word))


FORMS = (
    Form(
        name="nvidia-smi -q -x",
        recognises=lambda text: _ROOT in text,
        read=_read,
        rank=80,
        begins=lambda line: line.startswith("<?xml"),
    ),
)
