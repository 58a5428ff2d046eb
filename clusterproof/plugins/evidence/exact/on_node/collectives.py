"""Collectives of exact integers with known results, a process for each GPU of this node, over one or more nodes.

Runs in a Python that has PyTorch, over NCCL: it needs a GPU for each rank. Only a request with `"backend": "gloo"` runs
the same on CPUs, which tests this program and no GPU.
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
    collectives_for,
    copies,
    sums,
)
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, of_settings
from clusterproof.plugins.evidence.exact.on_node.processes import forked
from clusterproof.plugins.evidence.exact.on_node.products import address_of

TYPE_CHECKING = False  # Python 3.8 cannot subscript what is in collections.abc
if TYPE_CHECKING:
    Change = Callable[[int, Collectives], Collectives]
    Meeting = Callable[[RankPlace], Any]

WHOLE = {NCCL: 1 << 25, GLOO: 1 << 15}  # elements that one rank sends: enough for all channels of NCCL
MEETS_S = 60.0  # for all ranks to arrive
LOOKS_S = 30.0  # for PyTorch to count its GPUs
MARGIN_S = 5.0  # of the total time, to kill hanging ranks and print the others' results
LEAVES_S = 10.0  # for the first rank to exit after the others
NO_SUMS = ("tfloat32", "float8_e4m3fn", "float8_e5m2")  # sums that NCCL, or some of its versions, does not support
TIMED = "float32"
HANDLING = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")  # the latter before PyTorch 2.2
CPU = "cpu"  # a device of PyTorch
ENDS = "3"  # a rank exits without aborting: partial results would look like another's fault


def main(request: dict[str, Any]) -> None:
    """Print the answers of this node's ranks, as one JSON object."""
    print(json.dumps(measured(request)), flush=True)  # noqa: T201
    if request.get("node"):
        _outlast(request["address"], request["port"])


def measured(request: dict[str, Any], change: Change = lambda _, collectives: collectives) -> dict[str, Any]:
    """The answers of this node's ranks; `change` lets a test inject a fault into what a rank sends or receives.

    `ranks` is this node's number, 0 for one on each of its GPUs; `nodes`, `node`, `address` and `port` describe the
    others, if any. All of it ends within `within_s`.
    """
    until = time.monotonic() + request["within_s"]
    backend, nodes, node = request.get("backend", NCCL), request.get("nodes", 1), request.get("node", 0)
    local_ranks, why = ranks_of(request["ranks"], backend, request["within_s"] - MARGIN_S)
    length = WHOLE[backend] // (nodes * local_ranks) // 2 * 2
    with tempfile.TemporaryDirectory(prefix="clusterproof-") as folder:  # only its owner may enter it
        meet = _over_network(request["address"], request["port"]) if nodes > 1 else _in_file(f"{folder}/store")

        def job(local: int) -> Callable[[], Iterator[dict[str, Any]]]:
            device = f"cuda:{local}" if backend == NCCL else CPU
            group = RankPlace(node * local_ranks + local, nodes * local_ranks, device, length, request["seed"])
            return lambda: joined(group, backend, meet, request, change)

        left_s = until - MARGIN_S - time.monotonic()
        answers = (
            [{"error": why}] * local_ranks if why else forked([job(local) for local in range(local_ranks)], left_s)
        )
    about = {"torch": torch.__version__, "backend": backend, "ranks": nodes * local_ranks, "of_each_node": local_ranks}
    host = {"host": socket.gethostname()} if nodes > 1 else {}
    return {**about, "message_bytes": 4 * length * nodes * local_ranks, **host, "node": node, "answers": answers}


def ranks_of(requested: int, backend: str, within_s: float) -> tuple[int, str]:
    """The number of ranks on this node, or why they cannot be started."""
    if backend != NCCL:
        return max(requested, 1), ""
    (found,) = forked([_gpus], min(LOOKS_S, within_s))  # PyTorch cannot fork after it has looked for GPUs
    gpus, error = found.get("gpus", 0), found.get("error", "")
    if error:
        return max(requested, 1), f"PyTorch does not count its GPUs: {error}"
    if not gpus or gpus < requested:
        return max(requested, 1), f"PyTorch finds {gpus} GPUs; expected {requested or 'one at least'}"
    return requested or gpus, ""


def _gpus() -> dict[str, Any]:
    torch.cuda.init()  # reports why there are none
    return {"gpus": torch.cuda.device_count()}


def _outlast(address: str, port: int) -> None:
    """Wait until the first rank has exited: its node gets little time once this one ends."""
    until = time.monotonic() + LEAVES_S
    with suppress(OSError):
        while time.monotonic() < until:
            socket.create_connection((address, port), 1.0).close()
            time.sleep(0.1)


def _over_network(address: str, port: int) -> Meeting:
    patience = timedelta(seconds=MEETS_S)
    return lambda group: dist.TCPStore(address, port, group.ranks, group.rank == 0, patience)


def _in_file(path: str) -> Meeting:
    """For a single node: nobody else can reach it."""
    return lambda group: dist.FileStore(path, group.ranks)


def joined(
    group: RankPlace, backend: str, meet: Meeting, request: dict[str, Any], change: Change
) -> Iterator[dict[str, Any]]:
    """One rank, from meeting the others to its end: yields all results whenever there are new ones."""
    os.environ.update(dict.fromkeys(HANDLING, ENDS))
    if backend == NCCL:
        torch.cuda.set_device(group.device)
    else:
        torch.set_num_threads(1)
    patience = timedelta(seconds=MEETS_S)
    store = meet(group)
    store.set_timeout(patience)
    dist.init_process_group(backend, store=store, rank=group.rank, world_size=group.ranks, timeout=patience)
    collectives = change(group.rank, collectives_for(backend, group))
    yield from exchanged(group, collectives, of_settings(request["kinds"]), request["budget_s"], store)


def exchanged(
    group: RankPlace, collectives: Collectives, kinds: list[Kind], budget_s: float, store: Any
) -> Iterator[dict[str, Any]]:
    """All operations in rounds, until the first rank finds that the time is up."""
    began, rounds, reported = time.monotonic(), 0, 0
    lasted: list[float] = []
    operations: dict[tuple[str, str], dict[str, Any]] = {}
    own = {"rank": group.rank, "address": address_of(torch.cuda.current_device()) if group.device != CPU else ""}

    def answer() -> dict[str, Any]:
        return {**own, "rounds": rounds, "gb_per_s": _busbw(group, lasted), "operations": list(operations.values())}

    while rounds == 0 or _goes_on(group, rounds, time.monotonic() - began < budget_s, store):
        for kind in [*(kind for kind in kinds if kind.name not in NO_SUMS), None]:
            if kind:
                spent_s = sums(group, collectives, kind, rounds, operations)
                lasted += [spent_s] if kind.name == TIMED else []
            else:
                copies(group, collectives, rounds, operations)
            wrong = sum(len(one["wrong"]) for one in operations.values())
            if wrong > reported:  # a later operation may hang
                reported = wrong
                yield answer()
        rounds += 1
    store.add("done", 1)
    while group.rank == 0 and store.add("done", 0) < group.ranks and time.monotonic() - began < budget_s + MEETS_S:
        time.sleep(0.01)  # the first rank is the meeting point: it leaves last
    yield answer()


def _busbw(group: RankPlace, lasted: list[float]) -> float:
    """GB/s of all-reduces with these durations, the first of which connects; 0 if there were none."""
    spent_s = median(lasted[1:] or lasted or [0.0])
    whole_gb = 4 * group.ranks * group.length / 1e9
    return 2 * (group.ranks - 1) / group.ranks * whole_gb / spent_s if spent_s else 0.0


def _goes_on(group: RankPlace, number: int, has_time: bool, store: Any) -> bool:
    """Whether there is another round, on which all ranks agree, whatever happens to what they exchange."""
    if group.rank == 0:
        store.set(f"round {number}", "on" if has_time else "over")
    return bool(store.get(f"round {number}") == b"on")
