"""`nvidia-smi`: the table that everybody pastes, and what it says instead: no driver, a lost GPU, no GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.gpu.parse_nvidia_words import address, error, integer, process
from clusterproof.plugins.evidence.parsing import CaptureError, Form

_MAX_LINE = 400
_HEAD = re.compile(r"\| NVIDIA-SMI\s+\S.*?(?:Driver|KMD) Version: ([\w.]{1,30})")  # KMD since driver 610
_GPU = re.compile(r"\s*(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|ERR!|TCC|WDDM)\s*")
_BUS = re.compile(r"\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s.*")
_STATE = re.compile(
    r"\s*(?P<fan>\S+(?: %)?)\s+(?P<temperature>\S+)\s+(?P<pstate>\S+)\s+(?P<draw>\S+) ?/\s*(?P<cap>\S+)\s*"
)
_MEMORY = re.compile(r"\s*(?P<used>\S+)\s*/\s*(?P<total>\S+)\s*")
_USE = re.compile(r"\s*(?P<utilization>\S+)\s+(?P<mode>\S.*?)\s*")
_PROCESS = re.compile(
    r"\|\s+(\d{1,3})\s+(?:(?:\d+|N/A)\s+(?:\d+|N/A)\s+)?(\d{1,10})\s+([CGM+]{1,4})\s+(\S.*?)\s+(\d+MiB|N/A)\s*\|"
)
_NOBODY = "No running processes found"
_PROCESSES = "Processes:"
_MANY_ERRORS = 3  # words ERR! in a GPU's lines: one is often a broken fan sensor, more are a GPU that does not answer
_MODES = {"Default": 0, "E. Thread": 1, "Prohibited": 2, "E. Process": 3}
_MIG = {"Enabled": True, "Disabled": False}
_PERSISTENCE = {"On": True, "Off": False}


def _read(text: str) -> Mapping[str, object]:
    lines = [line.strip() for line in text.split("\n") if len(line) <= _MAX_LINE]
    gpus = _gpus(lines)
    is_whole = any(_PROCESSES in line for line in lines)
    if not gpus and not is_whole:
        raise CaptureError("it ends before the first GPU")
    head = next((match for line in lines if (match := _HEAD.match(line))), None)
    nvml: dict[str, object] = {"init": None, "gpus": list(gpus.values())}
    if head:
        nvml["driver"] = head[1]
    if is_whole and sorted(gpus) == list(range(len(gpus))):  # of a piece of the table nothing says how many there are
        nvml["count"] = len(gpus)
    _add_processes(gpus, lines)
    return {"nvml": nvml}


def _gpus(lines: list[str]) -> dict[int, dict[str, object]]:
    """The GPUs by number: a line with the number and the address begins one, and two more follow."""
    gpus: dict[int, dict[str, object]] = {}
    cells: list[list[str]] = []
    for line in lines:
        cut = line.strip("|").split("|") if line.startswith("|") and line.endswith("|") else []
        if len(cut) == 3 and _GPU.fullmatch(cut[0]) and _BUS.fullmatch(cut[1]):
            cells = [cut]
            number = int(cut[0].split()[0])
        elif cells and len(cut) == 3 and len(cells) < 3:
            cells.append(cut)
        else:
            cells = []
        if cells:
            gpus[number] = {"index": number, **_gpu(cells)}
    return gpus


def _gpu(cells: list[list[str]]) -> dict[str, object]:
    """One GPU out of its one to three lines of three cells."""
    gpu: dict[str, object] = {"lost": None}
    pci = _BUS.fullmatch(cells[0][1])
    if pci:
        gpu["pci"] = address(pci[1])
    if sum(cell.count("ERR!") for line in cells for cell in line) >= _MANY_ERRORS:
        return {**gpu, "lost": {"error": "UNKNOWN", "text": "nvidia-smi prints ERR!"}}
    named = _GPU.fullmatch(cells[0][0])
    if named:
        gpu |= {"name": named[2]} if not named[2].endswith("...") else {}
        gpu |= {"persistence_mode": _PERSISTENCE[named[3]]} if named[3] in _PERSISTENCE else {}
    gpu |= _ecc(cells[0][2].strip())
    if len(cells) > 1:
        gpu |= _second(cells[1])
    if len(cells) > 2:
        gpu |= _mig(cells[2][2].strip())
    return gpu


def _ecc(word: str) -> dict[str, object]:
    """The last cell of the first line: a number of errors, or Off. In MIG mode it is On, and says nothing."""
    if word == "Off":
        return {"ecc_enabled": False}
    count = integer(word) if word.isdecimal() else None
    return {} if count is None else {"ecc_enabled": True, "ecc_uncorrected_total": count}


def _second(cells: list[str]) -> dict[str, object]:
    """The second line: temperature, power, memory, utilisation, compute mode."""
    state, memory, use = _STATE.fullmatch(cells[0]), _MEMORY.fullmatch(cells[1]), _USE.fullmatch(cells[2])
    values: dict[str, object] = {}
    if state:
        values["temperature_c"] = _number(state["temperature"], "C")
        values["power_limit_w"] = _number(state["cap"], "W")
    if memory:
        values["memory_used_mib"] = _number(memory["used"], "MiB")
        values["memory_total_mib"] = _number(memory["total"], "MiB")
    if use:
        values["utilization_percent"] = _number(use["utilization"], "%")
        values["compute_mode"] = _MODES.get(use["mode"])
    return {key: value for key, value in values.items() if value is not None}


def _number(word: str, unit: str) -> object:
    """`28C`, `700W`, `81559MiB`, `100%`; an error for N/A and ERR!."""
    if error(word):
        return error(word)
    return integer(word) if word.endswith(unit) and word[: -len(unit)].isdecimal() else None


def _mig(word: str) -> dict[str, object]:
    problem = error(word)
    return {"mig_mode": problem} if problem else {"mig_mode": _MIG[word]} if word in _MIG else {}


def _add_processes(gpus: dict[int, dict[str, object]], lines: list[str]) -> None:
    """Add the compute processes to their GPUs; where the list is whole, the others have none."""
    rows = [match for line in lines if (match := _PROCESS.fullmatch(line))]
    listed = next((index for index, line in enumerate(lines) if _PROCESSES in line), None)
    if listed is None:
        return
    is_whole = any(_NOBODY in line for line in lines) or (
        rows and any(line[:2] == "+-" for line in lines[listed + 4 :])
    )
    for number, gpu in gpus.items():
        own = [match for match in rows if int(match[1]) == number]
        if gpu["lost"] is None and (own or is_whole):
            gpu["processes"] = [process(match[2], match[4], match[5]) for match in own if "C" in match[3]]


_NO_DRIVER = "NVIDIA-SMI has failed because"
_NO_START = "Failed to initialize NVML"
_NONE = "No devices were found"
_NO_LIBRARY = ("couldn't find libnvidia-ml", "nvidia-smi: command not found", "nvidia-smi: not found")
_NO_HANDLE = "Unable to determine the device handle for"
_VERSION = re.compile(r"(?:DRIVER|Driver|KMD) version\s+: ([\d.]{3,30})")
_MODULE = re.compile(r"^NVRM version: .{1,280}", re.MULTILINE)  # the first line of the kernel module's own file
_HANDLE = re.compile(
    r"Unable to determine the device handle for\s+(?:GPU|gpu)?\s*(?P<number>\d{1,3}(?=:? ))?:?\s*"
    r"(?P<pci>[0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]):\s*(?P<why>.*)"
)


# What may stand before a message: names of hosts and programs, or a time and a host's; with both it is logged.
_NAME = r"[-\w./@]{1,64}"
_NAMES = rf"(?:{_NAME}(?::| \|) ?(?:(?:line )?\d{{1,6}}: )?){{0,2}}"
_AT = r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s:]{0,20}:? )?"
_QUOTES = r"[`*_\"']{0,6}"  # Markdown's, and those of who quotes a message
_BEFORE = re.compile(rf"\s{{0,80}}{_QUOTES}(?:{_NAMES}|{_AT}(?:\[(?!\d+\.\d+\]){_NAME}\] )?)(?:NVIDIA-SMI )?")
_CORRUPTED = re.compile(
    r"^WARNING: infoROM is corrupted at gpu ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s{0,80}$",
    re.MULTILINE,
)
_MAX_CORRUPTED = 128


def _is_message(text: str) -> bool:
    return any(_lines(text, message) for message in (_NO_DRIVER, _NO_START, _NONE, _NO_HANDLE, *_NO_LIBRARY))


def _read_message(text: str) -> Mapping[str, object]:
    nvml: dict[str, object] = {}
    gpus = [gpu for line in _lines(text, _NO_HANDLE) if (gpu := _lost(line))]
    init = _init(text)
    if init:
        nvml["init"] = init
    elif gpus:
        nvml |= {"init": None, "gpus": gpus}
    elif _lines(text, _NONE):
        nvml |= {"init": None, "count": 0, "gpus": []}
    return {"nvml": nvml} if nvml else {}


def _lines(text: str, start: str) -> list[str]:
    """The lines that begin with these words, but for names or a time before them."""
    lines = (line for line in text.split("\n") if start in line) if start in text else ()
    return [line[line.index(start) :][:_MAX_LINE] for line in lines if _BEFORE.fullmatch(line[: line.index(start)])]


def _init(text: str) -> dict[str, str] | None:
    """Why the driver does not start, where it does not."""
    if _lines(text, _NO_DRIVER):
        return {"error": "DRIVER_NOT_LOADED", "text": _lines(text, _NO_DRIVER)[0]}
    missing = [line for message in _NO_LIBRARY for line in _lines(text, message)]
    if missing:
        return {"error": "LIBRARY_NOT_FOUND", "text": missing[0]}
    lines = _lines(text, _NO_START)
    return (error(lines[0].partition(":")[2].strip()) or {"error": "UNKNOWN", "text": lines[0]}) if lines else None


def _lost(line: str) -> dict[str, object] | None:
    """A GPU that gives no handle; its message names it by its address, some drivers by its number too."""
    message = _HANDLE.match(line)
    if not message:
        return None
    reason = message["why"].partition(".")[0]
    lost = error(reason) or {"error": "UNKNOWN", "text": message["why"][:200]}
    number = {"index": int(message["number"])} if message["number"] else {}
    return {**number, "pci": address(message["pci"]) or message["pci"].lower(), "lost": lost}


def _read_warnings(text: str) -> Mapping[str, object]:
    """The GPUs whose InfoROM is corrupted; of the others nvidia-smi says nothing, and nor does a text that was cut."""
    return {"nvml_inforom": {"gpus": {address(pci): False for pci in _CORRUPTED.findall(text)[:_MAX_CORRUPTED]}}}


def _read_version(text: str) -> Mapping[str, object]:
    version = _VERSION.search(text)
    return {"nvml": {"init": None, "driver": version[1]}} if version else {}


def _read_module(text: str) -> Mapping[str, object]:
    module = _MODULE.search(text)
    return {"nvml": {"kernel_module": module[0].strip()}} if module else {}


FORMS = (
    Form(
        name="nvidia-smi",
        recognises=lambda text: "| NVIDIA-SMI " in text or "Volatile Uncorr. ECC |" in text,
        read=_read,
        rank=30,
        begins=lambda line: line.lstrip().startswith("| NVIDIA-SMI "),
    ),
    Form(name="a message of nvidia-smi", recognises=_is_message, read=_read_message, rank=90),
    Form(
        name="nvidia-smi's warning of an InfoROM",
        recognises=_CORRUPTED.search,
        read=_read_warnings,
    ),
    Form(
        name="nvidia-smi --version",
        recognises=lambda text: "NVIDIA-SMI version" in text and _VERSION.search(text) is not None,
        read=_read_version,
        rank=20,
        begins=lambda line: line.startswith("NVIDIA-SMI version"),
    ),
    Form(
        name="/proc/driver/nvidia/version",
        recognises=_MODULE.search,
        read=_read_module,
        rank=20,
        begins=lambda line: line.startswith("NVRM version: "),
    ),
)
