"""Parses nccl-tests (`all_reduce_perf` and others), also with prefixes of mpirun and srun; and NCCL's messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from clusterproof.plugins.evidence.parsing import CaptureError, Form, exit_status, integer, number, short

MAX_NAMES = 16

_INFO = re.compile(r"\bNCCL (?:INFO|WARN)\b")
_NETWORK = re.compile(r"NCCL INFO Using network (\S.{0,60}?)\s*\Z")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([\w;,-]{1,60}?)(?:, fabric is ([\w-]{1,60}))?"
    r"\s{0,4}(?:\(found (\d{1,4}) nics\))?\s*\Z"
)
_WARNING = re.compile(r"\bNCCL WARN (.{1,300})")
_GPU_DIRECT = re.compile(r"\bvia NET/\S{1,60}/GDRDMA\b")


def is_nccl_log(text: str) -> bool:
    """Whether the text has NCCL's own lines."""
    return "NCCL INFO " in text or "NCCL WARN " in text


def network(lines: Iterable[str]) -> dict[str, object]:
    """The networks and libfabric providers that the ranks named, each with the number of lines with its name."""
    info = gpu_direct = 0
    networks: Counter[str] = Counter()
    providers: Counter[str] = Counter()
    fabrics: Counter[str] = Counter()
    nics: set[int] = set()
    warnings: dict[str, None] = {}
    for line in lines:
        if (warning := _WARNING.search(line)) and len(warnings) < MAX_NAMES:
            warnings[short(warning[1].strip())] = None
        if not _INFO.search(line):
            continue
        info += 1
        gpu_direct += bool(_GPU_DIRECT.search(line))
        if match := _NETWORK.search(line):
            networks[match[1]] += 1
        elif match := _PROVIDER.search(line):
            providers[match[1]] += 1
            if match[2]:
                fabrics[match[2]] += 1
            if match[3]:
                nics.add(int(match[3]))
    return {
        "info_lines": info,
        "networks": dict(islice(networks.items(), MAX_NAMES)),
        "providers": dict(islice(providers.items(), MAX_NAMES)),
        "fabrics": dict(islice(fabrics.items(), MAX_NAMES)),
        "nics": sorted(nics)[:MAX_NAMES],
        "gpu_direct_lines": gpu_direct,
        "warnings": list(warnings),
    }


MAX_ROWS = 4096
MAX_PROBLEMS = 16
MAX_HOSTS = 4096
LONGEST_LINE = 500

_RANK = re.compile(r"\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}: ")  # prefix of mpirun, of srun --label
_HEADER = re.compile(r"#?\s{0,40}size\s{1,20}count\s{1,20}(?:\(elements\)\s{1,20})?type\b.{0,400}\bbusbw\b", re.ASCII)
_OPTIONS = re.compile(r"#?\s*nThread \d{1,6} nGpus \d{1,6} .{0,300}?\bvalidation: (\d)")
_BANNER = re.compile(r"#?\s*nccl-tests version (\S{1,40})")
_STARTING = re.compile(r"#?\s*Collective test starting: (\S{1,60})")
_BINARY = re.compile(
    r"\b((?:all_reduce|all_gather|alltoall|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)_perf)\b"
)
_DEVICE = re.compile(r"#?\s*Rank\s{1,8}(\d{1,7})\b.{0,80}?\bon\s{1,8}(\S{1,253})\s{1,8}device\s{1,8}\d")
_NCCL = re.compile(r"NCCL version (\S{1,60})")
_OUT_OF_BOUNDS = re.compile(r"#?\s*Out of bounds values\s{0,8}:\s{0,8}(\d{1,18})\s{1,8}(\S{1,20})")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s{0,8}:\s{0,8}(\S{1,40})")
_PROBLEM = re.compile(
    r".{0,200}?\b(?:Test (?:CUDA |NCCL )?failure|Invalid number of GPUs|invalid size specified|not enough slots|"
    r"requested more processes|process returned|NCCL WARN|unhandled (?:cuda|system) error|CUDA error|non-zero exit)"
    r"|#?\s*Avg bus bandwidth\s{0,8}:.{0,40}\bFAILED",  # a bandwidth below NCCL_TESTS_MIN_BW, if that was set
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"not enough slots|requested more processes|process returned|non-zero exit"
    r"|invalid size specified for 'm(?:in|ax)bytes'"
)


def is_nccl_tests(text: str) -> bool:
    """Whether nccl-tests printed it, or was started and failed."""
    if any(_HEADER.match(line) or _OPTIONS.match(line) for line in _words(text)):
        return True
    refused = _REFUSED.search(text)
    return bool(refused and (_BINARY.search(text) or "minbytes" in text or "maxbytes" in text))


def read(text: str) -> Mapping[str, object]:
    """The collector `nccl_tests`. Raises CaptureError."""
    run: dict[str, Any] = {"version": "", "nccl": "", "collective": "", "validation": None}
    run |= {"out_of_bounds": None, "out_of_bounds_word": "", "avg_busbw_gb_per_s": None}
    hosts: dict[str, None] = {}
    first: list[str] = []  # where rank 0 is of each run that has not ended
    apart: list[str] = []
    problems: dict[str, None] = {}
    ranks = begun = ended = 0
    lines = list(_words(text))
    for line in lines:
        if device := _DEVICE.match(line):
            ranks += 1
            hosts[device[2]] = None
            first += [device[2]] if int(device[1]) == 0 else []
            apart = max(apart, first, key=len) if len(first) > 1 else apart
            continue
        if _PROBLEM.match(line):
            problems[short(line.strip())] = None
        begun += bool(_OPTIONS.match(line))
        ended += bool(_OUT_OF_BOUNDS.match(line))
        first = first if ended < begun else []
        _take(run, line)
    if 0 < ended < begun and run["out_of_bounds"] == 0:  # the word alone says that another run has reached its end
        run["out_of_bounds"] = None
    collective = run["collective"] or next((program[1] for program in _BINARY.finditer(text)), "")
    log = {
        **run,
        "collective": collective,
        "ranks": ranks or None,
        "hosts": list(hosts)[:MAX_HOSTS],
        "apart": apart[:MAX_HOSTS] if ended == begun else [],  # otherwise one was cut off before the next
        "rows": list(_rows(lines))[:MAX_ROWS],
        "problems": [*problems][-MAX_PROBLEMS:],  # the last problem, with which it ended
        "exit": exit_status(text),
        "network": network(lines),
    }
    return {"nccl_tests": {"logs": [log]}}


def read_nccl_log(text: str) -> Mapping[str, object]:
    """The network for the collector `nccl_tests`, from the log of any program that used NCCL. Raises CaptureError."""
    if is_nccl_tests(text):
        raise CaptureError("this is a log of nccl-tests; expected one of another program")
    return {"nccl_tests": {"logs": [{"network": network(_words(text))}]}}


def _words(text: str) -> Iterator[str]:
    """The lines without the rank before them."""
    for line in text.split("\n"):
        line = line[:LONGEST_LINE]
        rank = _RANK.match(line)
        yield line[rank.end() :] if rank else line


def _take(run: dict[str, Any], line: str) -> None:
    """Take in one line that is not a row. If a log has several runs, the worst check counts."""
    if match := _OPTIONS.match(line):
        run["validation"] = int(match[1])
    elif match := _BANNER.match(line):
        run["version"] = match[1]
    elif match := _STARTING.match(line):
        run["collective"] = match[1]
    elif match := _OUT_OF_BOUNDS.match(line):
        count = int(match[1])
        if count >= (run["out_of_bounds"] or 0) and run["out_of_bounds_word"] != "FAILED":
            run["out_of_bounds"], run["out_of_bounds_word"] = count, match[2]
    elif match := _AVERAGE.match(line):
        run["avg_busbw_gb_per_s"] = number(match[1])
    elif match := _NCCL.search(line):
        run["nccl"] = match[1]


def _rows(lines: Iterable[str]) -> Iterator[dict[str, object]]:
    """The rows of every table, read by the names of their columns, which differ by version and collective."""
    columns: list[str] = []
    for line in lines:
        if _HEADER.match(line):
            columns = line.replace("(elements)", "").lstrip("# ").split()
            columns = columns if "time" in columns else []
        elif columns and (row := _row(line.split(), columns)):
            yield row


def _row(cells: list[str], columns: list[str]) -> dict[str, object]:
    """One row, nothing where the line is none. A column that is blank (alltoall has no redop) shifts the others."""
    if len(cells) < 8 or integer(cells[0]) is None or integer(cells[1]) is None:
        return {}
    measured = [name.lstrip("#") for name in columns[columns.index("time") :]]
    head, tail = cells[: -len(measured)], cells[-len(measured) :]
    if not 3 <= len(head) <= 5:
        return {}
    half = measured.index("time", 1) if "time" in measured[1:] else len(measured)
    return {
        "size_bytes": integer(head[0]),
        "count": integer(head[1]),
        "type": short(head[2]),
        "redop": short(head[3]) if "redop" in columns and len(head) > 3 else "",
        "out_of_place": _measured(measured[:half], tail[:half]),
        "in_place": _measured(measured[half:], tail[half:]),
    }


def _measured(names: list[str], cells: list[str]) -> dict[str, object]:
    """Time and bandwidths of one half; None where nccl-tests prints N/A. `wrong` is a count, `deviation` a maximum."""
    row = dict(zip(names, cells, strict=True))
    return {
        "time_us": number(row.get("time", "")),
        "algbw_gb_per_s": number(row.get("algbw", "")),
        "busbw_gb_per_s": number(row.get("busbw", "")),
        "wrong": _whole(row.get("wrong", "")),
        "deviation": number(row.get("error", "")),
    }


def _whole(cell: str) -> int | None:
    """A count, which nccl-tests print with six digits: `1.34218e+08`; None where the cell is none."""
    count = number(cell)
    return None if count is None else int(count)


FORMS = (
    Form("nccl-tests", is_nccl_tests, read),
    Form("NCCL_DEBUG=INFO", lambda text: is_nccl_log(text) and not is_nccl_tests(text), read_nccl_log),
)
