"""Collectives of exact integers with known results, one process for each GPU, on one node or several.

Runs in a Python that has PyTorch, over NCCL: without a GPU for each rank none is made. Only a request that says
`"backend": "gloo"` has the same made by processors, which proves this program and no GPU.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from clusterproof.plugins.evidence.exact.on_node.exchanges import (
    GLOO,
    NCCL,
    Collectives,
    RankPlace,
    copies,
    sums,
    way_of,
)
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, of_settings
from clusterproof.plugins.evidence.exact.on_node.processes import forked

WHOLE = {NCCL: 1 << 25, GLOO: 1 << 15}  # elements that one rank sends: all channels of NCCL have some of them
MEETS_S = 60.0  # for all ranks to be there
LOOKS_S = 30.0  # for PyTorch to count its GPUs
MARGIN_S = 5.0  # of the whole time, for ending ranks that hang and printing what the others saw
LEAVES_S = 10.0  # for the first of them to end after the others
NO_SUMS = ("tfloat32", "float8_e4m3fn", "float8_e5m2")  # of these none is made by NCCL, or by all of its versions
TIMED = "float32"
HANDLING = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")  # the latter before PyTorch 2.2
ENDS = "3"  # a rank ends, and aborts nothing: what is half done would look like another's fault


Change = Callable[[int, Collectives], Collectives]
Meeting = Callable[[RankPlace], Any]


def main(request: dict[str, Any]) -> None:
    """Print what each rank of this node answers, as one JSON object."""
    print(json.dumps(measured(request)), flush=True)  # noqa: T201
    if request.get("node"):
        _outlast(request["address"], request["port"])


def measured(request: dict[str, Any], change: Change = lambda _, way: way) -> dict[str, Any]:
    """What the ranks of this node answer; `change` lets a test put a fault into what a rank sends or receives.

    `ranks` are this node's, 0 for one on each of its GPUs; `nodes`, `node`, `address` and `port` say who else takes
    part: alone without them. All of it ends within `within_s`.
    """
    until = time.monotonic() + request["within_s"]
    backend, nodes, node = request.get("backend", NCCL), request.get("nodes", 1), request.get("node", 0)
    here, why = ranks_of(request["ranks"], backend, request["within_s"] - MARGIN_S)
    length = WHOLE[backend] // (nodes * here) // 2 * 2
    with tempfile.TemporaryDirectory(prefix="clusterproof-") as folder:  # its owner alone may enter it
        meet = _over_network(request["address"], request["port"]) if nodes > 1 else _in_file(f"{folder}/store")

        def job(local: int) -> Callable[[], Iterator[dict[str, Any]]]:
            device = f"cuda:{local}" if backend == NCCL else "cpu"
            group = RankPlace(node * here + local, nodes * here, device, length, request["seed"])
            return lambda: joined(group, backend, meet, request, change)

        left_s = until - MARGIN_S - time.monotonic()
        answers = [{"error": why}] * here if why else forked([job(local) for local in range(here)], left_s)
    about = {"torch": torch.__version__, "backend": backend, "ranks": nodes * here, "of_each_node": here}
    host = {"host": socket.gethostname()} if nodes > 1 else {}
    return {**about, "message_bytes": 4 * length * nodes * here, **host, "node": node, "answers": answers}


def ranks_of(asked: int, backend: str, within_s: float) -> tuple[int, str]:
    """How many ranks this node has, and why they cannot be started, where they cannot."""
    if backend != NCCL:
        return max(asked, 1), ""
    (found,) = forked([_gpus], min(LOOKS_S, within_s))  # PyTorch does not fork after it has looked for GPUs
    gpus, error = found.get("gpus", 0), found.get("error", "")
    if error:
        return max(asked, 1), f"PyTorch does not count its GPUs: {error}"
    if not gpus or gpus < asked:
        return max(asked, 1), f"PyTorch finds {gpus} GPUs; expected {asked or 'one at least'}"
    return asked or gpus, ""


def _gpus() -> dict[str, Any]:
    torch.cuda.init()  # which says why there are none
    return {"gpus": torch.cuda.device_count()}


def _outlast(address: str, port: int) -> None:
    """Wait until the first rank has left: its node is given little time once this one ends."""
    until = time.monotonic() + LEAVES_S
    with suppress(OSError):
        while time.monotonic() < until:
            socket.create_connection((address, port), 1.0).close()
            time.sleep(0.1)


def _over_network(address: str, port: int) -> Meeting:
    patience = timedelta(seconds=MEETS_S)
    return lambda group: dist.TCPStore(address, port, group.ranks, group.rank == 0, patience)


def _in_file(path: str) -> Meeting:
    """Of one node alone: nobody else can reach it."""
    return lambda group: dist.FileStore(path, group.ranks)


def joined(
    group: RankPlace, backend: str, meet: Meeting, request: dict[str, Any], change: Change
) -> Iterator[dict[str, Any]]:
    """One rank, from its meeting the others to its end: each time that it has found more, all that it has found."""
    os.environ.update(dict.fromkeys(HANDLING, ENDS))
    if backend == NCCL:
        torch.cuda.set_device(group.device)
    else:
        torch.set_num_threads(1)
    patience = timedelta(seconds=MEETS_S)
    store = meet(group)
    store.set_timeout(patience)
    dist.init_process_group(backend, store=store, rank=group.rank, world_size=group.ranks, timeout=patience)
    way = change(group.rank, way_of(backend, group))
    yield from exchanged(group, way, of_settings(request["kinds"]), request["budget_s"], store)


def exchanged(
    group: RankPlace, way: Collectives, kinds: list[Kind], budget_s: float, store: Any
) -> Iterator[dict[str, Any]]:
    """All operations in rounds, until the first rank finds that the time is up."""
    began, rounds, said = time.monotonic(), 0, 0
    lasted: list[float] = []
    operations: dict[tuple[str, str], dict[str, Any]] = {}

    def answer() -> dict[str, Any]:
        speed = _busbw(group, lasted)
        return {"rank": group.rank, "rounds": rounds, "gb_per_s": speed, "operations": list(operations.values())}

    while rounds == 0 or _goes_on(group, rounds, time.monotonic() - began < budget_s, store):
        for kind in [*(kind for kind in kinds if kind.name not in NO_SUMS), None]:
            if kind:
                spent_s = sums(group, way, kind, rounds, operations)
                lasted += [spent_s] if kind.name == TIMED else []
            else:
                copies(group, way, rounds, operations)
            wrong = sum(len(one["wrong"]) for one in operations.values())
            if wrong > said:  # a later operation may hang
                said = wrong
                yield answer()
        rounds += 1
    store.add("done", 1)
    while group.rank == 0 and store.add("done", 0) < group.ranks and time.monotonic() - began < budget_s + MEETS_S:
        time.sleep(0.01)  # the first rank is where the others meet: it leaves last
    yield answer()


def _busbw(group: RankPlace, lasted: list[float]) -> float:
    """GB/s of the all-reduces that took so long, of which the first connects; 0 where none was made."""
    spent_s = median(lasted[1:] or lasted or [0.0])
    whole_gb = 4 * group.ranks * group.length / 1e9
    return 2 * (group.ranks - 1) / group.ranks * whole_gb / spent_s if spent_s else 0.0


def _goes_on(group: RankPlace, number: int, has_time: bool, store: Any) -> bool:
    """Whether there is another round, which all ranks are to know alike, whatever becomes of what they exchange."""
    if group.rank == 0:
        store.set(f"round {number}", "on" if has_time else "over")
    return bool(store.get(f"round {number}") == b"on")
