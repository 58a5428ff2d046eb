"""What nvidia-smi says instead of an answer: the driver does not start, a GPU is lost, there is no GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.gpu.parse_nvidia_words import address, error
from clusterproof.plugins.evidence.parsing import Form

_MAX_LINE = 400
_NO_DRIVER = "NVIDIA-SMI has failed because"
_NO_START = "Failed to initialize NVML"
_NONE = "No devices were found"
_NO_LIBRARY = ("couldn't find libnvidia-ml", "nvidia-smi: command not found", "nvidia-smi: not found")
_NO_HANDLE = "Unable to determine the device handle for"
_VERSION = re.compile(r"(?:DRIVER|Driver) version\s+: ([\d.]{3,30})")
_MODULE = re.compile(r"^NVRM version: .{1,280}", re.MULTILINE)  # the first line of the kernel module's own file
_HANDLE = re.compile(
    r"Unable to determine the device handle for\s+(?:GPU|gpu)?\s*(?P<number>\d{1,3}(?=:? ))?:?\s*"
    r"(?P<pci>[0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]):\s*(?P<why>.*)"
)


def _recognises(text: str) -> bool:
    return any(words in text for words in (_NO_DRIVER, _NO_START, _NONE, _NO_HANDLE, *_NO_LIBRARY))


def _read(text: str) -> Mapping[str, object]:
    data: dict[str, object] = {}
    gpus = [gpu for line in _lines(text, _NO_HANDLE) if (gpu := _lost(line))]
    init = _init(text)
    if init:
        data["init"] = init
    elif gpus:
        data |= {"init": None, "gpus": gpus}
    elif _lines(text, _NONE):
        data |= {"init": None, "count": 0, "gpus": []}
    return {"nvml": data} if data else {}


def _lines(text: str, words: str) -> list[str]:
    """The lines that begin with these words, but for a name of the program or a host before them."""
    return [line[line.index(words) :][:_MAX_LINE] for line in text.split("\n") if 0 <= line.find(words) < 100]


def _init(text: str) -> dict[str, str] | None:
    """Why the driver does not start, where it does not."""
    if _lines(text, _NO_DRIVER):
        return {"error": "DRIVER_NOT_LOADED", "text": _lines(text, _NO_DRIVER)[0]}
    missing = [line for words in _NO_LIBRARY for line in _lines(text, words)]
    if missing:
        return {"error": "LIBRARY_NOT_FOUND", "text": missing[0]}
    found = _lines(text, _NO_START)
    return (error(found[0].partition(":")[2].strip()) or {"error": "UNKNOWN", "text": found[0]}) if found else None


def _lost(line: str) -> dict[str, object] | None:
    """A GPU that gives no handle; its message names it by its address, some drivers by its number too."""
    found = _HANDLE.match(line)
    if not found:
        return None
    reason = found["why"].partition(".")[0]
    lost = error(reason) or {"error": "UNKNOWN", "text": found["why"][:200]}
    number = {"index": int(found["number"])} if found["number"] else {}
    return {**number, "pci": address(found["pci"]) or found["pci"].lower(), "lost": lost}


def _read_version(text: str) -> Mapping[str, object]:
    found = _VERSION.search(text)
    return {"nvml": {"init": None, "driver": found[1]}} if found else {}


def _read_module(text: str) -> Mapping[str, object]:
    found = _MODULE.search(text)
    return {"nvml": {"kernel_module": found[0].strip()}} if found else {}


FORMS = (
    Form(name="a message of nvidia-smi", recognises=_recognises, read=_read, rank=90),
    Form(
        name="nvidia-smi --version",
        recognises=lambda text: "NVIDIA-SMI version" in text and _VERSION.search(text) is not None,
        read=_read_version,
        rank=20,
        begins=lambda line: line.startswith("NVIDIA-SMI version"),
    ),
    Form(
        name="/proc/driver/nvidia/version",
        recognises=lambda text: _MODULE.search(text) is not None,
        read=_read_module,
        rank=20,
        begins=lambda line: line.startswith("NVRM version: "),
    ),
)
