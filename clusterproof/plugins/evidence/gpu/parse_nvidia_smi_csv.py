"""`nvidia-smi --query-…=… --format=csv`: a line of column names, then one for each GPU or process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.evidence.gpu.parse_nvidia_values import gpu_of
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import MAX_PROCESSES, address, error, integer, process
from clusterproof.plugins.evidence.parsing import CaptureError, Form

_MAX_ROWS = 4096
_SHOWN = 100  # characters of a line that is not understood
_COLUMN = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,60}(?:\.[A-Za-z0-9_]{1,60}){0,8})(?: \[[^\]]{1,12}\])?")
# Column names that nothing else begins a table with, and those that are common words besides.
_OURS = re.compile(
    r"(?:uuid|gpu_uuid|gpu_name|gpu_bus_id|gpu_serial|driver_version|vbios_version|persistence_mode|compute_mode|"
    r"gpu_recovery_action|used_gpu_memory|used_memory|pstate|compute_cap|(?:pci|pcie|ecc|memory|temperature|power|clocks|mig|"
    r"fabric|remapped_rows|retired_pages|utilization|enforced|clocks_event_reasons|clocks_throttle_reasons|inforom|"
    r"fan|module|gom|accounting|driver_model|encoder|platform|gsp|c2c|protected_memory)\..*)"
)
_NEIGHBOURS = frozenset({"index", "name", "timestamp", "count", "pid", "process_name", "serial", "hostname"})
_IDENTITY = {
    "timestamp": re.compile(r"\d{4}/.{1,40}"),
    "index": re.compile(r"\d{1,3}"),
    **dict.fromkeys(("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id"), re.compile(r"\S{1,100}")),
}
# What begins only lines of GPUs, by its column: a line with more values than columns is known by it.
_FIRST = {
    "timestamp": _IDENTITY["timestamp"],
    "index": _IDENTITY["index"],
    **dict.fromkeys(("uuid", "gpu_uuid"), re.compile(r"(?:GPU|MIG)-\S{1,96}")),
    **dict.fromkeys(("pci.bus_id", "gpu_bus_id"), re.compile(r"[0-9A-Fa-f]{4,8}(?::[0-9A-Fa-f]{2}){2}\.\d")),
}
_LOOKED_AT = 20  # lines in which the column names are looked for


def _columns(line: str) -> list[str] | None:
    """The column names of a line, in small letters and without their units; None where it is no such line."""
    if len(line) > 20_000:
        return None
    cells = [_COLUMN.fullmatch(cell.strip()) for cell in line.split(",")]
    names = [match[1].lower() for match in cells if match]
    if len(names) < len(cells) or not any(_OURS.fullmatch(name) for name in names):
        return None
    strange = [name for name in names if not _OURS.fullmatch(name) and name not in _NEIGHBOURS]
    return names if len(names) > 1 and len(strange) * 2 <= len(names) else None


def _recognises(text: str) -> bool:
    return any(_columns(line) for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT])


def _rows(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Each line below a line of column names, as what stands in each column; of very many, the last ones."""
    lines = text.rstrip("\n").split("\n")
    columns = (_first_columns(text) or []) if len(lines) > _MAX_ROWS else []
    for line in lines[-_MAX_ROWS:]:
        named = _columns(line)
        if named:
            columns = named
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if columns and any(cells):
            if len(cells) < len(columns):
                cells = cells[:-1]  # the line is cut short, and so may be its last word
            row = dict(zip(columns, cells))  # noqa: B905 - a line that is cut short
            if "pid" in columns or (len(cells) <= len(columns) and _is_of_gpu(row)):
                yield columns, row


def _overlong(text: str) -> Mapping[str, str]:
    """Lines of GPUs with more values than columns, by the first one: which of the others is whose is unknown."""
    columns = _first_columns(text) or [""]
    form = _FIRST.get(columns[0]) if "pid" not in columns else None
    lines: dict[str, str] = {}
    for line in map(str.strip, text.rstrip("\n").split("\n")[-_MAX_ROWS:]):
        first, _, others = line.partition(", ")
        if form and form.fullmatch(first) and others.count(",") + 2 > len(columns):
            lines.setdefault(first, line)
    return lines


def _is_of_gpu(row: Mapping[str, str]) -> bool:
    """Whether a line has what identifies a GPU in its form, or an error there: not a line of another output."""
    cells = ((form, row.get(name, "")) for name, form in _IDENTITY.items())
    return all(not cell or cell.startswith("[") or error(cell) or form.fullmatch(cell) for form, cell in cells)


def _read(text: str) -> Mapping[str, object]:
    gpus: list[dict[str, object]] = []
    named: dict[str, dict[str, object]] = {}
    nvml: dict[str, object] = {"init": None}
    inforoms: dict[str, bool] = {}
    known = set()
    for columns, row in _rows(text):
        if not row:
            continue
        known.add(row[columns[0]])
        if "pid" in columns:
            _add_process(named, row)
        elif "retired_pages.address" in columns:  # a line for each page: who has it is all that the collector can use
            _of_named(named, row)
        else:
            gpus.append(_gpu(row))
            nvml |= _of_all(row)
            inforoms |= _inforom(row)
    column = (_first_columns(text) or [""])[0]
    if column != "timestamp":
        gpus += [_gpu({column: first}) for first in _overlong(text) if first not in known]
    if not gpus and not named and "pid" not in (_first_columns(text) or ()):
        raise CaptureError("no line below the column names")
    described = gpus + list(named.values())
    intact: dict[str, object] = {"nvml_inforom": {"gpus": inforoms}} if inforoms else {}
    return {"nvml": {**nvml, "gpus": described} if described else nvml, **intact}


def _gpu(row: Mapping[str, str]) -> dict[str, object]:
    gpu: dict[str, object] = gpu_of(row)
    index = row.get("index", "")
    return {**({"index": int(index)} if re.fullmatch(r"\d{1,3}", index) else {}), **gpu}


def _inforom(row: Mapping[str, str]) -> dict[str, bool]:
    """Whether the InfoROM of a line's GPU is intact, by its PCI address; nothing where the line does not say it."""
    pci, state = address(row.get("pci.bus_id", "")), row.get("inforom.checksum_validation", "").lower()
    return {pci: state == "valid"} if pci and state in ("valid", "invalid") else {}


def _of_all(row: Mapping[str, str]) -> dict[str, object]:
    """What every line says of the driver and of the number of GPUs."""
    nvml: dict[str, object] = {}
    driver, count = row.get("driver_version", ""), row.get("count", "")
    if driver and not error(driver):
        nvml["driver"] = driver[:40]
    if re.fullmatch(r"\d{1,3}", count):
        nvml["count"] = int(count)
    return nvml


def _of_named(named: dict[str, dict[str, object]], row: Mapping[str, str]) -> dict[str, object] | None:
    """The GPU that a line names, of those named so far; None where it names none."""
    pci, uuid = address(row.get("gpu_bus_id", "")), row.get("gpu_uuid", "")
    if not (pci or uuid) or error(uuid):
        return None
    gpu = named.setdefault(pci or uuid, {"lost": None})
    gpu |= {key: value for key, value in (("pci", pci), ("uuid", uuid)) if value}
    return gpu


def _add_process(named: dict[str, dict[str, object]], row: Mapping[str, str]) -> None:
    """Add a process to its GPU. Who holds no GPU is not listed: of GPUs without a line nothing is known."""
    gpu = _of_named(named, row)
    if gpu is None or integer(row.get("pid", "")) is None:
        return
    running = gpu.setdefault("processes", [])
    if isinstance(running, list) and len(running) < MAX_PROCESSES:
        memory = row.get("used_gpu_memory", row.get("used_memory", ""))
        running.append(process(row["pid"], row.get("process_name", row.get("name", "")), memory))


def _first_columns(text: str) -> list[str] | None:
    return next((names for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT] if (names := _columns(line))), None)


def _unclear(text: str) -> Sequence[str]:
    """Lines on the rows of a loop that are too many to be read, and on the first one with too many values."""
    count, columns = text.rstrip("\n").count("\n") + 1, _first_columns(text) or []
    many = f"{_NAME}: {count:,} lines, of which the last {_MAX_ROWS:,} were read" if count > _MAX_ROWS else ""
    odd = next(iter(_overlong(text).values()), "")
    said = f"{_NAME}: {odd.count(',') + 1} values for {len(columns)} columns: {odd:.{_SHOWN}}" if odd else ""
    return [*filter(None, (many, said))]


_NAME = "nvidia-smi --query-gpu"
FORMS = (
    Form(
        name=_NAME,
        recognises=_recognises,
        read=_read,
        rank=70,
        begins=lambda line: _columns(line) is not None,
        unclear=_unclear,
    ),
)
