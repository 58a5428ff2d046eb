"""Output of exact products on a node with GPUs, as PyTorch printed it on a CPU; and the same with faults."""

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
GPUS = 8
SUMS = ("float64", "float32", "float16", "bfloat16", "int8")
STEPS = 16
Change = Callable[[dict[str, Any]], None]


def of_type(name: str) -> dict[str, Any]:
    """Products of one type, all correct."""
    result, products = TYPES[name]
    sets = {"wide by narrow": 1, "narrow by wide": 1, "wide by narrow, complement": 1, "narrow by wide, complement": 1}
    done = {"type": name, "result": result, "products": products, "operations": 71303168.0, "sets": sets}
    return {**done, "toggled": {"left": [16, 16], "right": [16, 16]}, "wrong_products": 0, "wrong": []}


def collectives() -> dict[str, Any]:
    """Collectives of eight GPUs, all correct."""
    names = [(name, kind) for kind in SUMS for name in ("all_reduce", "reduce_scatter")]
    names += [("all_gather", "int32"), ("all_to_all", "int32")]
    answers = [
        {"rank": rank, "rounds": 12, "gb_per_s": 371.2, "operations": [of_operation(*operation) for operation in names]}
        for rank in range(GPUS)
    ]
    about = {"torch": "2.8.0+cu128", "backend": "nccl", "ranks": GPUS, "of_each_node": GPUS, "node": 0}
    return {**about, "answers": answers}


def of_operation(name: str, kind: str) -> dict[str, Any]:
    """One operation as seen by one rank."""
    return {"operation": name, "type": kind, "rounds": 12, "wrong": []}


def steps() -> dict[str, Any]:
    """Training steps of eight GPUs, with the same results on each."""
    gpu = {"name": "NVIDIA H100 80GB HBM3", "sms": 132, "libraries": ["cuDNN 91002", "libcublas.so.12"]}
    gpus = [{**gpu, "types": [of_steps(name) for name in ("float32", "bfloat16")]} for _ in range(GPUS)]
    return {"torch": "2.8.0+cu128", "cuda": "12.8", "gpus": gpus}


def of_steps(name: str, result: str = "5ff5d9b84e68", other_from: int = 0) -> dict[str, Any]:
    """Steps in one type; from one step on with another result."""
    digests = [f"{result if step >= other_from else '5ff5d9b84e68'}{step:020x}" for step in range(STEPS)]
    return {"type": name, "passes": 40, "digests": digests, "differing": []}


def exact(*changes: Change) -> str:
    """All documents merged, with these changes."""
    gpu = {"name": "NVIDIA H100 80GB HBM3", "sms": 132, "seconds": 60.4, "rounds": 2, "size": 4096}
    gpus = [{**gpu, "types": [of_type(name) for name in TYPES]} for _ in range(8)]
    of_cores = [{"type": name, "cores": CORES, "products": count * CORES} for name, (_, count) in TYPES.items()]
    of_cores[2] = {"type": "tfloat32", "has_none": "a processor has no such products", "cores": 0, "products": 0}
    of_cores += [{"type": name, "cores": CORES, "products": 4000} for name in ("scalar", "SHA-256", "memory")]
    cores = {"cores": CORES, "memory_mib": 393216, "types": of_cores, "wrong": [], "errors": []}
    answers: dict[str, Any] = {"gpus": {"torch": "2.8.0+cu128", "gpus": gpus}, "cores": cores}
    answers.update(collectives=collectives(), steps=steps())
    for change in changes:
        change(answers)
    return json.dumps(answers)


def wrong(
    place: str, bits: list[int], again: int, changed: bool = False, name: str = "wide by narrow"
) -> dict[str, Any]:
    """The description of one wrong product."""
    mistake = {"set": name, "elements": 1, "again": again, "of": 8, "alike": again == 8, "operands_changed": changed}
    return {**mistake, "where": place, "bits": bits, "expected": "0x44e2a000", "got": "0x44e2b000"}


def on_gpu(gpu: int, name: str, *mistakes: dict[str, Any]) -> Change:
    """A GPU computes wrong products of a type."""

    def change(answers: dict[str, Any]) -> None:
        kind = next(entry for entry in answers["gpus"]["gpus"][gpu]["types"] if entry["type"] == name)
        kind.update(wrong=list(mistakes), wrong_products=len(mistakes))

    return change


def untested(name: str, why: str) -> Change:
    """PyTorch has no products of a type on any GPU."""

    def change(answers: dict[str, Any]) -> None:
        for gpu in answers["gpus"]["gpus"]:
            others = [entry for entry in gpu.get("types", []) if entry["type"] != name]
            gpu["types"] = [*others, {"type": name, "why": why}]

    return change


def dead(gpu: int, error: str) -> Change:
    """A GPU's process does not answer."""
    return lambda answers: answers["gpus"]["gpus"].__setitem__(gpu, {"error": error})


def without_last(part: str) -> Change:
    """The output of `gpus` or `steps` lacks the last GPU."""
    return lambda answers: answers[part]["gpus"].pop()


def on_core(core: int, name: str, mistake: dict[str, Any]) -> Change:
    """A core, or its part of memory, computes wrong results."""
    return lambda answers: answers["cores"]["wrong"].append({"core": core, "type": name, **mistake})


def core_without_answer(core: int, error: str) -> Change:
    """A core's process does not answer."""
    return lambda answers: answers["cores"]["errors"].append({"core": core, "error": error})


def exchanged_wrong(
    name: str,
    sender: int | None,
    receivers: list[int],
    rounds: tuple[int, ...] = (3,),
    kind: str = "int32",
    **more: Any,
) -> Change:
    """These ranks received wrong data from one rank in these rounds of an operation."""
    mistake = {"sender": sender, "elements": 12, "first": 512, "how": "", "other": None, "bits": [9], **more}

    def change(tampered: dict[str, Any]) -> None:
        for receiver in receivers:
            operations = tampered["collectives"]["answers"][receiver]["operations"]
            operation = next(each for each in operations if (each["operation"], each["type"]) == (name, kind))
            operation["wrong"] += [{"round": number, **mistake} for number in rounds]

    return change


def by_processors(answers: dict[str, Any]) -> None:
    """The ranks exchanged data without a GPU."""
    answers["collectives"]["backend"] = "gloo"


def rank_without_answer(rank: int, error: str) -> Change:
    """A rank's process does not answer."""
    return lambda answers: answers["collectives"]["answers"].__setitem__(rank, {"error": error})


def trained_otherwise(gpus: list[int], name: str, result: str = "a39cac9f29f7", other_from: int = 0) -> Change:
    """These GPUs have another result in one type from one step on."""

    def change(answers: dict[str, Any]) -> None:
        for gpu in gpus:
            kinds = answers["steps"]["gpus"][gpu]["types"]
            kinds[:] = [entry if entry["type"] != name else of_steps(name, result, other_from) for entry in kinds]

    return change


def unsteady(gpus: list[int], name: str) -> Change:
    """These GPUs compute other steps when they repeat them."""

    def change(answers: dict[str, Any]) -> None:
        for gpu in gpus:
            kind = next(entry for entry in answers["steps"]["gpus"][gpu]["types"] if entry["type"] == name)
            kind["differing"] = [{"pass": 7, "step": 4}]

    return change


def gpu_without_steps(gpu: int, error: str) -> Change:
    """A GPU takes no steps."""
    return lambda answers: answers["steps"]["gpus"].__setitem__(gpu, {"error": error})


def with_exact(*changes: Change) -> Callable[[NodeImage], NodeImage]:
    """Give the node these exact products."""
    from tests.testbed.faults import with_file

    return lambda image: with_file(image, EXACT, exact(*changes))
