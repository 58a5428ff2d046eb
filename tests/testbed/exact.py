"""What exact products print on a node with GPUs, as PyTorch on a processor once printed it; and with faults in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.testbed.image import NodeImage

EXACT = "/usr/lib/testbed/exact.json"
TYPES = {
    "float64": ("float64", 574),
    "float32": ("float32", 1154),
    "tfloat32": ("float32", 980),
    "float16": ("float32", 62),
    "bfloat16": ("float32", 30),
    "float8_e4m3fn": ("float32", 116),
    "float8_e5m2": ("float32", 60),
    "int8": ("int32", 34),
}
CORES = 192
Change = Callable[[dict[str, Any]], None]


def of_type(name: str) -> dict[str, Any]:
    """Products of one type, all of them right."""
    result, products = TYPES[name]
    sets = {"wide by narrow": 1, "narrow by wide": 1, "wide by narrow, complement": 1, "narrow by wide, complement": 1}
    done = {"type": name, "result": result, "products": products, "operations": 71303168.0, "sets": sets}
    return {**done, "toggled": {"left": [16, 16], "right": [16, 16]}, "wrong_products": 0, "wrong": []}


def exact(*changes: Change) -> str:
    """Both documents as one, with these changes."""
    gpu = {"name": "NVIDIA H100 80GB HBM3", "sms": 132, "seconds": 60.4, "rounds": 2, "size": 4096}
    gpus = [{**gpu, "types": [of_type(name) for name in TYPES]} for _ in range(8)]
    of_cores = [{"type": name, "cores": CORES, "products": count * CORES} for name, (_, count) in TYPES.items()]
    of_cores[2] = {"type": "tfloat32", "has_none": "a processor has no such products", "cores": 0, "products": 0}
    of_cores += [{"type": name, "cores": CORES, "products": 4000} for name in ("scalar", "SHA-256", "memory")]
    cores = {"cores": CORES, "memory_mib": 393216, "types": of_cores, "wrong": [], "errors": []}
    data: dict[str, Any] = {"gpus": {"torch": "2.8.0+cu128", "gpus": gpus}, "cores": cores}
    for change in changes:
        change(data)
    return json.dumps(data)


def wrong(
    place: str, bits: list[int], again: int, changed: bool = False, name: str = "wide by narrow"
) -> dict[str, Any]:
    """One wrong product as it is described."""
    said = {"set": name, "elements": 1, "again": again, "of": 8, "alike": again == 8, "operands_changed": changed}
    return {**said, "where": place, "bits": bits, "expected": "0x44e2a000", "got": "0x44e2b000"}


def on_gpu(gpu: int, name: str, *found: dict[str, Any]) -> Change:
    """A GPU makes wrong products of a type."""

    def change(data: dict[str, Any]) -> None:
        kind = next(one for one in data["gpus"]["gpus"][gpu]["types"] if one["type"] == name)
        kind.update(wrong=list(found), wrong_products=len(found))

    return change


def untested(name: str, why: str) -> Change:
    """PyTorch makes no products of a type, on no GPU."""

    def change(data: dict[str, Any]) -> None:
        for gpu in data["gpus"]["gpus"]:
            others = [one for one in gpu.get("types", []) if one["type"] != name]
            gpu["types"] = [*others, {"type": name, "why": why}]

    return change


def dead(gpu: int, error: str) -> Change:
    """A GPU's process gives no answer."""
    return lambda data: data["gpus"]["gpus"].__setitem__(gpu, {"error": error})


def on_core(core: int, name: str, found: dict[str, Any]) -> Change:
    """A core computes wrong, or its part of memory is."""
    return lambda data: data["cores"]["wrong"].append({"core": core, "type": name, **found})


def core_without_answer(core: int, error: str) -> Change:
    """A core's process gives no answer."""
    return lambda data: data["cores"]["errors"].append({"core": core, "error": error})


def with_exact(*changes: Change) -> Callable[[NodeImage], NodeImage]:
    """The node's exact products are these."""
    from tests.testbed.faults import with_file

    return lambda image: with_file(image, EXACT, exact(*changes))
