"""What NCCL says of its network where NCCL_DEBUG=INFO is set."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAMES = 16

_INFO = re.compile(r"\bNCCL (?:INFO|WARN)\b")
_NETWORK = re.compile(r"NCCL INFO Using network (\S.{0,60}?)\s*\Z")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([\w;,-]{1,60}?)(?:, fabric is ([\w-]{1,60}))?"
    r"\s{0,4}(?:\(found (\d{1,4}) nics\))?\s*\Z"
)
_GPU_DIRECT = re.compile(r"\bvia NET/\S{1,60}/GDRDMA\b")


def is_nccl_log(text: str) -> bool:
    """Whether NCCL's own lines are in it."""
    return "NCCL INFO " in text


def network(lines: Iterable[str]) -> dict[str, object]:
    """The networks and libfabric providers that the ranks named, each with the number of lines that name it."""
    info = gpu_direct = 0
    networks: dict[str, int] = {}
    providers: dict[str, int] = {}
    fabrics: dict[str, int] = {}
    nics: set[int] = set()
    for line in lines:
        if not _INFO.search(line):
            continue
        info += 1
        gpu_direct += bool(_GPU_DIRECT.search(line))
        if found := _NETWORK.search(line):
            networks[found[1]] = networks.get(found[1], 0) + 1
        elif found := _PROVIDER.search(line):
            providers[found[1]] = providers.get(found[1], 0) + 1
            if found[2]:
                fabrics[found[2]] = fabrics.get(found[2], 0) + 1
            if found[3]:
                nics.add(int(found[3]))
    return {
        "info_lines": info,
        "networks": dict(list(networks.items())[:MAX_NAMES]),
        "providers": dict(list(providers.items())[:MAX_NAMES]),
        "fabrics": dict(list(fabrics.items())[:MAX_NAMES]),
        "nics": sorted(nics)[:MAX_NAMES],
        "gpu_direct_lines": gpu_direct,
    }
