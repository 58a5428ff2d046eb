"""`nvidia-smi -q`, sections by indentation, one block for each GPU, and the same in XML with -x."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import ParseError, XMLParser

from clusterproof.plugins.evidence.gpu.parse_nvidia_values import gpu_of
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import address, cuda, error, processes
from clusterproof.plugins.evidence.parsing import CHOSEN, PLACE, CaptureError, Form

MAX_GPUS = 128  # of a node; none has more than 16
_MAX_WORDS = 5_000  # of one GPU; it has 300
_TITLE = "NVSMI LOG"
_GPU = re.compile(r"GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])")


@dataclass(slots=True)
class Block:
    """The output about one GPU, or before the first: values by the path of their headings, in lower case."""

    pci: str = ""
    pairs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def attributes(self) -> Mapping[str, str]:
        """The words by their paths; of those that come several times the first."""
        return dict(reversed(self.pairs))


def collector_of(head: Mapping[str, str], gpus: Iterable[Block]) -> dict[str, object]:
    """The collector `nvml` out of what stands before the first GPU, and of the GPUs' blocks."""
    blocks = list(gpus)[:MAX_GPUS]
    attached = next((head[key] for key in ("attached gpus", "attached_gpus") if key in head), "").strip()
    count = int(attached) if re.fullmatch(r"\d{1,4}", attached) else None
    driver = _version(head, "driver version", "kmd version")
    version = cuda(_version(head, "cuda version", "cuda umd version"))
    nvml: dict[str, object] = {
        "init": None,
        "gpus": [_gpu(block, index, count == len(blocks)) for index, block in enumerate(blocks)],
    }
    if count is not None and count <= MAX_GPUS:
        nvml["count"] = count
    if driver and not error(driver):
        nvml["driver"] = driver[:40]
    if version is not None:
        nvml["cuda"] = version
    return nvml


def _version(head: Mapping[str, str], *names: str) -> str:
    """A version under the last of its names that is printed: since driver 610 the first one is deprecated."""
    words = [head[key] for name in names for key in (name, name.replace(" ", "_")) if key in head]
    return words[-1].partition(" [")[0].strip() if words else ""


def _gpu(block: Block, index: int, is_complete: bool) -> dict[str, object]:
    """One GPU. Its number is its place where all are listed, else the number of its device file, if known."""
    attributes = block.attributes
    gpu: dict[str, object] = gpu_of(attributes)
    pci = address(block.pci)
    if pci:
        gpu["pci"] = pci
    minor = next((attributes[key] for key in ("minor number", "minor_number") if key in attributes), "").strip()
    if is_complete:
        gpu["index"] = index
    elif re.fullmatch(r"\d{1,3}", minor):
        gpu["index"] = int(minor)
    running = None if gpu["lost"] else processes(block.pairs)
    if running is not None:
        gpu["processes"] = running
    return gpu


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
        elif not gpus and _OF_A_GPU.match(line):
            gpus.append(Block())  # the one before the first that is named
        if named or line == BETWEEN:
            stack.clear()
            continue
        _take(line.expandtabs(), gpus[-1] if gpus else head, stack)
    if not gpus and not head.pairs:
        raise CaptureError("it names no GPU and does not say how many are attached")
    if not gpus and "attached units" in head.attributes:
        return {}  # -q -u: of the boxes that GPUs once came in
    if not gpus and "attached gpus" not in head.attributes:
        raise CaptureError("it ends before the first GPU")
    return {"nvml": collector_of(head.attributes, gpus)}


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


# The sections that people cut out of it, as checks tell them to; a GPU that has none says N/A.
_SECTION = re.compile(r"( *)(Fabric|Remapped Rows|ECC Errors|Clocks (?:Event|Throttle) Reasons) *(?:: *N/A)?")
_OF_A_GPU = re.compile(rf"(?: {{4}})?(?! ){_SECTION.pattern}\Z")  # the first line of a text may have lost its blanks
_GUID = re.compile(r" *GPU Fabric GUID +: ")  # what grep finds besides, in an earlier section of the GPU
BETWEEN = "--"  # grep's line between lines that do not follow each other


def _is_cut_out(text: str) -> bool:
    """Whether it is what `grep -A` leaves of such a section, of one GPU or of several."""
    text = text.lstrip()
    first = text.partition("\n")[0]
    return bool(_SECTION.fullmatch(first) or _GUID.match(first)) and " : " in text[:250] and not _recognises(text)


def _read_cut_out(text: str) -> Mapping[str, object]:
    """The GPUs by their sections. Of several each has its place among them, unless they were chosen."""
    gpus, is_even = _cut_out(text.expandtabs().split("\n"))
    nvml = collector_of({}, gpus)
    if len(gpus) > 1 and is_even and CHOSEN not in text:
        shown = [_gpu(block, 0, is_complete=False) for block in gpus[:MAX_GPUS]]
        nvml["gpus"] = [{**gpu, PLACE: f"{index}/{len(gpus)}"} for index, gpu in enumerate(shown)]
    return {"nvml": nvml}


def _cut_out(lines: Iterable[str]) -> tuple[list[Block], bool]:
    """A block for each GPU, and whether each has the same sections.

    A MIG device has sections of its own, further indented, and before those of its GPU: they are left out.
    """
    lines = [line for line in lines if line.strip() not in ("", BETWEEN, CHOSEN)]
    margins: dict[str, int] = {}
    for margin, name in (match.groups() for match in map(_SECTION.fullmatch, lines) if match):
        margins[name] = min(len(margin), margins.get(name, len(margin)))
    gpus: list[Block] = []
    seen = dict.fromkeys(margins, 0)
    stack: list[tuple[int, str]] = []
    block: Block | None = None
    for line in lines:
        heading = _SECTION.fullmatch(line)
        if _GUID.match(line) or (heading and len(heading[1]) > margins[heading[2]]):
            block = None
        elif heading:
            seen[heading[2]] += 1
            gpus += [Block()] if seen[heading[2]] > len(gpus) else []
            block = gpus[seen[heading[2]] - 1]
            stack.clear()
        if block:
            _take(line, block, stack)
    return gpus, len(set(seen.values())) == 1


_ROOT, _END = "<nvidia_smi_log", "</nvidia_smi_log>"
_MAX_DEPTH = 20
_STEP = 1024 * 1024  # characters that are given to the parser at once
_MAX_WORDS_OF_XML = 20_000  # of one GPU; with all supported clocks it has a few thousand


def _read_xml(text: str) -> Mapping[str, object]:
    """Every GPU whose element is whole. What stands before the root is left out: a DTD never meets the parser."""
    start = text.find(_ROOT)
    end = text.find(_END, start)
    reading = _Reading()
    broken = reading.read(text[start : end + len(_END) if end >= 0 else len(text)])
    if not reading.gpus and "attached_gpus" not in reading.head.attributes:
        raise CaptureError(f"it has no whole GPU{': ' + broken if broken else ''}")
    return {"nvml": collector_of(reading.head.attributes, reading.gpus)}


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
        elif self.text is not None and len(self.current.pairs) < _MAX_WORDS_OF_XML:
            below = self.path[1:] if self.current is self.head else self.path[2:]
            _take_xml(self.current, "/".join(below), "".join(self.text).strip())
        self.path.pop()
        self.text = None

    def close(self) -> None:
        """The document ends."""


def _take_xml(block: Block, path: str, word: str) -> None:
    if "supported_clocks/" not in path:
        block.pairs.append((path, word))


FORMS = (
    Form(
        name="nvidia-smi -q",
        recognises=_recognises,
        read=_read,
        rank=80,
        begins=lambda line: _TITLE in line,
    ),
    Form(
        name="nvidia-smi -q | grep -A",
        recognises=_is_cut_out,
        read=_read_cut_out,
        rank=30,
    ),
    Form(
        name="nvidia-smi -q -x",
        recognises=lambda text: _ROOT in text,
        read=_read_xml,
        rank=80,
        begins=lambda line: line.startswith("<?xml"),
    ),
)
