"""Exact dot products pinned to each core, one pass over main memory, and with PyTorch products of matrices."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import itemgetter, mul
from random import Random
from typing import Any

from clusterproof.plugins.evidence.exact.on_node.operands import of_settings
from clusterproof.plugins.evidence.exact.on_node.processes import forked

SIZE, LONGEST = 64, 1024  # for products on one core: the operands fit in its cache
TERMS = 4096  # of a dot product in pure Python
WIDE = 1 << 20  # limit of operands: sums of 4096 products are exact in float64
PRIME = (1 << 521) - 1  # a Mersenne prime: a^(p-1) is 1 modulo p for every a that it does not divide
BLOCK = 1 << 22  # bytes of memory written and read at once
SHARE = 4  # at most a fourth of what is available is written
MIB = 1 << 20
MAX_WRONG = 4  # of a core and a type that are described
MOST_WRONG = 500  # in total, the first of each core and type before others: answers are limited
FIRST = b"exact"  # the input of the hash chain
KEPT = ("type", "result", "products", "wrong", "why", "has_none")  # of what PyTorch multiplies
HASHES, HASHED = 2000, "314d4947a030abaec8be5486ca619d075603807ae8fd9c5833a285a2aec43ff2"


def main(request: dict[str, Any]) -> None:
    """Print the cores' answers, as one JSON object."""
    print(json.dumps(measured(request)))  # noqa: T201


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """The combined results of all cores: by type the amount, and by core what was wrong."""
    if request["kinds"]:  # once for all of them, if the node has PyTorch
        from clusterproof.plugins.evidence.exact.on_node import examine  # noqa: F401
    cores = sorted(os.sched_getaffinity(0))
    bytes_each = min(available_bytes() // SHARE // len(cores), request["most_mib"] * MIB) // BLOCK * BLOCK

    def job(core: int) -> Callable[[], Iterator[dict[str, Any]]]:
        return lambda: of_core(core, request, bytes_each)

    answers = dict(zip(cores, forked([job(core) for core in cores], request["within_s"])))
    types: dict[str, dict[str, Any]] = {}
    wrong: list[tuple[int, dict[str, Any]]] = []
    for core, answer in answers.items():
        for of_type in answer.get("types", []):
            known = types.setdefault(of_type["type"], {**of_type, "cores": 0, "wrong_cores": 0, "products": 0})
            known["cores"] += "products" in of_type
            known["products"] += of_type.get("products", 0)
            known["wrong_cores"] += bool(of_type.get("wrong"))
            wrong_of_type = enumerate(of_type.get("wrong", [])[:MAX_WRONG])
            wrong += [(number, {"core": core, "type": of_type["type"], **each}) for number, each in wrong_of_type]
    return {
        "cores": len(cores),
        "online": online_cpus(),
        "memory_mib": sum(answer.get("memory_mib", 0) for answer in answers.values()),
        "types": [{name: value for name, value in of_type.items() if name != "wrong"} for of_type in types.values()],
        "wrong": [of_type for _, of_type in sorted(wrong, key=itemgetter(0))[:MOST_WRONG]],
        "errors": [
            *({"core": core, "error": answer["error"]} for core, answer in answers.items() if "error" in answer),
            *_alone_without(answers, types),
        ],
    }


def _alone_without(answers: dict[int, dict[str, Any]], types: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The types that a core did not multiply though others did: what it says of the library is so of all cores."""
    for core, answer in answers.items():
        for of_type in answer.get("types", []):
            if "why" in of_type and types[of_type["type"]]["products"]:
                yield {
                    "core": core,
                    "error": f"{of_type['type']} was multiplied on other cores, not on it: {of_type['why']}",
                }


def of_core(core: int, request: dict[str, Any], bytes_of_memory: int) -> Iterator[dict[str, Any]]:
    """The work of one core, in a process bound to it: yields all results whenever there are new ones."""
    os.sched_setaffinity(0, {core})
    types = [dot_products(request["seed"] + core, request["budget_s"] / 4), hashes()]
    yield {"types": types}
    types.append(memory(bytes_of_memory, request["seed"] + core))
    done = {"types": types, "memory_mib": bytes_of_memory // MIB}
    yield done
    if request["kinds"]:
        import torch

        from clusterproof.plugins.evidence.exact.on_node.examine import examine

        torch.set_num_threads(1)
        kinds = of_settings(request["kinds"])
        for examined in examine("cpu", kinds, SIZE, LONGEST, request["budget_s"], request["seed"] + core):
            more = [{name: of_type[name] for name in KEPT if name in of_type} for of_type in examined["types"]]
            yield {**done, "types": [*types, *more]}


def dot_products(seed: int, seconds: float) -> dict[str, Any]:
    """Dot products in float64, compared with integers; and powers modulo a prime, which are 1."""
    random = Random(seed)  # noqa: S311 - operands
    wrong, products, until = [], 0, time.monotonic() + seconds
    while not products or time.monotonic() < until:
        left = [random.randrange(WIDE // 2, WIDE) for _ in range(TERMS)]
        right = [random.choice((-1, 1)) * random.randrange(WIDE // 2, WIDE) for _ in range(TERMS)]
        due = sum(map(mul, left, right))
        got = sum(map(mul, map(float, left), map(float, right)), 0.0)
        products += 2
        if got != due:
            again = sum(sum(map(mul, map(float, left), map(float, right)), 0.0) != due for _ in range(8))
            wrong.append({"where": "a dot product", "expected": str(due), "got": repr(got), "again": again, "of": 8})
        power = pow(left[0], PRIME - 1, PRIME)
        if power != 1:
            wrong.append({"where": "a power modulo a prime", "expected": "1", "got": hex(power)[:40]})
    return {"type": "scalar", "products": products, "wrong": wrong}


def hashes() -> dict[str, Any]:
    """A chain of SHA-256 hashes: any error changes the final value."""
    digest = FIRST
    for _ in range(HASHES):
        digest = hashlib.sha256(digest * 64).digest()
    wrong = [] if digest.hex() == HASHED else [{"where": "a chain of hashes", "expected": HASHED, "got": digest.hex()}]
    return {"type": "SHA-256", "products": HASHES, "wrong": wrong}


def memory(length: int, seed: int) -> dict[str, Any]:
    """Write memory and read it back, a pattern and its complement: returns differences."""
    drawn = Random(seed).getrandbits(8 * BLOCK)  # noqa: S311 - a pattern
    pattern, complement = (bits.to_bytes(BLOCK, "little") for bits in (drawn, drawn ^ ((1 << 8 * BLOCK) - 1)))
    wrong: list[dict[str, Any]] = []
    if length:
        with mmap.mmap(-1, length) as region:
            for block in (pattern, complement):
                for at in range(0, length, BLOCK):
                    region[at : at + BLOCK] = block
                for at in range(0, length, BLOCK):
                    wrong += _differences(region, at, block)
    return {"type": "memory", "products": 2 * length // BLOCK, "wrong": wrong[:MAX_WRONG]}


def _differences(region: Any, at: int, block: bytes) -> list[dict[str, Any]]:
    read = region[at : at + BLOCK]
    if read == block:
        return []
    byte = next(number for number in range(BLOCK) if read[number] != block[number])
    again = sum(region[at : at + BLOCK] != block for _ in range(8))
    values = {"expected": hex(block[byte]), "got": hex(read[byte])}
    bits = [bit for bit in range(8) if (read[byte] ^ block[byte]) >> bit & 1]
    return [{"where": f"byte {at + byte} of what was written", "bits": bits, "again": again, "of": 8, **values}]


def online_cpus() -> int:
    """How many CPUs the kernel runs on, with those that this process is not given; 0 if that is not known."""
    with suppress(OSError), open("/proc/stat", encoding="ascii") as file:
        return sum(line.startswith("cpu") and line[3:4].isdecimal() for line in file)
    return 0


def available_bytes(root: str = "") -> int:
    """The kernel's available memory, limited by that of the container, job or service that this runs in."""
    with open(f"{root}/proc/meminfo", encoding="ascii") as file:
        available = [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    for limit in limits(root):
        with suppress(OSError, ValueError), open(limit, encoding="ascii") as file:
            available.append(int(file.read()))
    return min(available, default=0)


def limits(root: str) -> list[str]:
    """The memory limit files of this process's control group and those above it, of either version."""
    groups, files = ["0::/"], []
    with suppress(OSError), open(f"{root}/proc/self/cgroup", encoding="utf-8") as file:
        groups += file.read().split("\n")
    for number, controllers, path in (group.split(":", 2) for group in groups if group.count(":") > 1):
        if number == "0" or "memory" in controllers.split(","):
            top, name = ("", "memory.max") if number == "0" else ("/memory", "memory.limit_in_bytes")
            folders = [folder for folder in path.split("/") if folder]
            files += [
                "/".join([f"{root}/sys/fs/cgroup{top}", *folders[:depth], name]) for depth in range(len(folders) + 1)
            ]
    return files
