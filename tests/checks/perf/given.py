"""A test's reports of nodes under load or of what was measured between them, and a check's result on one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from tests.testbed.exact import Change, exact

COLLECTIVE, STEP = "gpu.exact_collective", "gpu.exact_step"
H100, A100, DISPLAY = "2330", "20b2", "1ff0"  # PCI device ids, the last of a T1000


def ran(output: str, status: int | None = 0, command: str = "x") -> dict[str, Any]:
    """One run of a program."""
    return {"command": command, "exit": status, "output": output}


def evaluated(
    check: str,
    collector: str,
    values: Mapping[str, object],
    instance_type: str = "p5.48xlarge",
    name: str = "gpu001",
    policy: Policy = NO_POLICY,
    gpus: int | None = None,
    on_bus: Sequence[str] = (),
    models: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Result:
    """A check's result on one of these nodes, each of which reported its value.

    This many GPUs are expected of each, by default as many as its type has; `on_bus` are the drivers of the GPUs on the
    bus, or `models`, by node, their PCI device ids.
    """
    expect = {} if gpus is None else {"gpus": gpus}
    cluster = Cluster("c", "local", tuple(Target(node, instance_type=instance_type, expect=expect) for node in values))
    shared = _bus([_gpu(*numbered) for numbered in enumerate(on_bus)])
    own = {node: bus_of(of) for node, of in models.items()}
    evidence = {
        node: NodeEvidence(node, {**own.get(node, shared), collector: Collected(Status.READ, value)})
        for node, value in values.items()
    }
    return evaluate(all_checks()[check], nodes(cluster, evidence, "perf", policy)[name])


def of_node(
    check: str,
    run: PairwiseRun | None,
    name: str,
    instance_type: str = "",
    expect: Mapping[str, int] = MappingProxyType({}),
) -> Result:
    """A check's result on a node of which nothing is known but what was measured between nodes."""
    target = Target(name, instance_type=instance_type, expect=expect)
    return evaluate(all_checks()[check], Node(target, NodeEvidence(name), between=run))


def bus_of(models: Sequence[str]) -> dict[str, Collected]:
    """A bus with GPUs of these PCI device ids."""
    return _bus([_gpu(at, "nvidia", model) for at, model in enumerate(models)])


def _bus(devices: list[dict[str, object]]) -> dict[str, Collected]:
    return {"pci": Collected(Status.READ, {"devices": devices})} if devices else {}


def _gpu(number: int, driver: str, model: str | None = None) -> dict[str, object]:
    kind = "030000" if model == DISPLAY else "030200"
    fields: dict[str, object] = {
        "address": f"0000:{number:02x}:00.0",
        "vendor": "10de",
        "class": kind,
        "driver": driver,
    }
    return fields if model is None else {**fields, "device": model}


def from_host(*speeds: float) -> str:
    """nvbandwidth's output for copies from the host to these GPUs."""
    columns, cells = " ".join(map(str, range(len(speeds)))), " ".join(f"{speed:.2f}" for speed in speeds)
    return f"Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column)\n {columns}\n 0 {cells}\n"


NEAR, FAR = 26.34, 21.9  # GB/s of A6000s on one socket and on two, from NVIDIA/nvbandwidth#50


def copying(
    sockets: Sequence[int],
    name: str = "gpu001",
    far: float = FAR,
    slow: int | None = None,
    is_placed: bool = True,
    host: Sequence[float] = (),
    nvlinks: Sequence[bool] = (),
    bridged: bool = False,
    lost: bool = False,
    first: str = "2230",
) -> NodeEvidence:
    """GPUs at these sockets, with the speed of copies to those at another; one of them runs at half speed to all.

    A socket below 0 is unknown. `host`: the speed of each GPU's copies from the host, if measured; `nvlinks`: whether
    each GPU's are up, if the driver reports it; `bridged`: whether they join pairs. One more GPU may be `lost`. `first`
    is the first GPU's PCI device id.
    """
    head = "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column)\n"
    rows = ["".join(f" {number}" for number in range(len(sockets)))]
    for gpu, here in enumerate(sockets):
        row = [
            "N/A" if gpu == other else f"{(NEAR if here == there else far) * (0.5 if slow in (gpu, other) else 1):.2f}"
            for other, there in enumerate(sockets)
        ]
        rows.append(f" {gpu} {' '.join(row)}")
    devices = [
        {
            "address": f"0000:{number:02x}:00.0",
            "vendor": "10de",
            "device": "2230" if number else first,
            "class": "030200",
            **({"path": [f"pci{number}", f"g{number}"], "numa": socket, "function_of": ""} if is_placed else {}),
        }
        for number, socket in enumerate([*sockets, *([0] if lost else [])])
    ]
    runs = [ran(head + "\n".join(rows) + "\n"), *([ran(from_host(*host))] if host else [])]
    copies = {"gpus": len(sockets), "by": "nvbandwidth", "runs": runs}
    reports = {"gpu_bandwidth": copies, "pci": {"devices": devices, "switches": []}}
    if nvlinks:
        gpus = [{"index": at, "nvlinks": [is_up] * 4, **_bridge(at, bridged)} for at, is_up in enumerate(nvlinks)]
        reports["nvml"] = {"gpus": [*gpus, *([{"index": len(gpus), "error": "GPU_IS_LOST"}] if lost else [])]}
    return NodeEvidence(name, collectors={key: Collected(Status.READ, value) for key, value in reports.items()})


def _bridge(gpu: int, is_there: bool) -> dict[str, Any]:
    return {"nvlinks_to": {f"GPU {gpu ^ 1}": 4}} if is_there else {}


def value(part: str, *changes: Change, **more: object) -> dict[str, Any]:
    """What a node with these changes sends."""
    return {"gpus": 8, **more, **ran(json.dumps(json.loads(exact(*changes))[part]))}


def exchanged(*changes: Change) -> Result:
    """The check's result on a node whose ranks printed this."""
    return evaluated(COLLECTIVE, "exact_collective", {"gpu001": value("collectives", *changes)})


def trained(*nodes: tuple[Change, ...], drivers: tuple[str, ...] = (), gpus: int = 8) -> Result:
    """The result on the first of these nodes, each with its changes and driver."""
    values = {
        f"gpu{number:03}": value("steps", *changes, gpus=gpus, driver=drivers[number - 1] if drivers else "580.65")
        for number, changes in enumerate(nodes, 1)
    }
    return evaluated(STEP, "exact_step", values, gpus=gpus)
