"""What nodes measured under load is said in figures, though every check passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.reports.measurements import MAX_LINES, MAX_TYPES, measurements
from tests.testbed.outputs import NCCL_ROWS, nccl_log


def lines(**of_nodes: Mapping[str, Any]) -> list[str]:
    """The lines of nodes with these collectors."""
    evidence = {
        name: NodeEvidence(name, {collector: Collected(Status.READ, value) for collector, value in collected.items()})
        for name, collected in of_nodes.items()
    }
    return measurements(nodes(Cluster("c", "local", tuple(map(Target, evidence))), evidence, "perf"))


def gemm(*tflops: float) -> dict[str, Any]:
    """The matrix products of a node with so many GPUs."""
    printed = json.dumps({"type": "torch.bfloat16", "size": 8192, "tflops": [[speed] * 3 for speed in tflops]})
    return {"gpu_gemm": {"command": "python3", "exit": 0, "output": printed}}


def exact(*gpus: Mapping[str, int], wrong: int = 0) -> dict[str, Any]:
    """The exact products of a node's GPUs by type."""
    of_gpus = [
        {
            "name": "H100",
            "types": [
                {"type": kind, "products": products, "wrong_products": wrong, "wrong": []}
                for kind, products in types.items()
            ],
        }
        for types in gpus
    ]
    return {"gpu_exact": {"command": "python3", "exit": 0, "output": json.dumps({"gpus": of_gpus})}}


def test_speeds_are_shown_with_their_range_and_the_node_that_has_the_least() -> None:
    assert lines(a=gemm(700.0, 720.0), b=gemm(690.5, 710.0)) == [
        "gpu_gemm: bfloat16 products of 8192 × 8192: 690.5 to 720 TFLOP/s, median 705 (4 on 2 nodes, the least on b)"
    ]
    assert lines(a=gemm(700.0)) == ["gpu_gemm: bfloat16 products of 8192 × 8192: 700 TFLOP/s (1 on 1 node)"]


def test_exact_arithmetic_is_shown_with_the_least_that_was_verified_on_any_gpu() -> None:
    every = exact({"bfloat16": 5000, "float64": 300}, {"bfloat16": 4096})
    assert lines(a=every, b=exact({"bfloat16": 6000, "float64": 10})) == [
        "gpu_exact: right products on each of 3 GPUs on 2 nodes, at least: bfloat16 4,096, float64 0"
    ]


def test_no_wrong_product_counts_as_verified() -> None:
    assert lines(a=exact({"bfloat16": 5000}, wrong=1)) == []


def test_what_cannot_be_read_hides_no_other_measurement() -> None:
    broken = {"gpu_gemm": {"command": "python3", "exit": 1, "output": "Traceback"}}
    assert lines(a=broken, b=gemm(700.0)) == ["gpu_gemm: bfloat16 products of 8192 × 8192: 700 TFLOP/s (1 on 1 node)"]
    assert lines(a={}, b=broken) == []


def test_a_bandwidth_that_was_not_measured_is_no_slow_one() -> None:
    logs = [nccl_log(), nccl_log(rows=NCCL_ROWS.replace(" 473.38", "    N/A"))]
    every = [{"node_busbw": {"gpus": 8, "command": "all_reduce_perf", "exit": 0, "output": log}} for log in logs]
    assert lines(a=every[0], b=every[1]) == ["node_busbw: all-reduce of 1 GiB: 473.4 GB/s (1 on 1 node)"]


def test_of_more_types_than_a_line_has_room_for_the_number_is_shown() -> None:
    (line,) = lines(a=exact({f"type{number}": 1 for number in range(MAX_TYPES + 2)}))
    assert line.endswith("type15 1, and 2 more")


def test_a_node_that_invents_measurements_does_not_fill_the_screen() -> None:
    many = {f"n{number}": exact({f"type{number}": 1}) for number in range(100)}
    files = {f"f{number}": {"fs_bandwidth": {"folder": f"/fsx{number}\x1b[2J", **_moved()}} for number in range(100)}
    said = lines(**many, **files)
    assert len(said) == MAX_LINES + 1
    assert said[-1].startswith("… and ")
    assert all(line.isprintable() and len(line) < 700 for line in said)


def _moved() -> dict[str, Any]:
    return {way: {"bytes": 3e10, "seconds": 10.0} for way in ("write", "read")}
