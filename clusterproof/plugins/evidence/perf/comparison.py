"""References for GPU copies and products: GPUs of the same model on the node and in its group.

Copies between GPUs are compared only with GPUs as near to the others. A GPU that is slower than all with which it may
not be compared is incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import inf
from types import MappingProxyType

from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.robust import median
from clusterproof.plugins.core.verdict import incomplete
from clusterproof.plugins.evidence.group import Median
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.facts import Shortfall, below_best, below_median
from clusterproof.plugins.evidence.perf.gpu_peers import (
    OTHERS,
    UNKNOWN_WAYS,
    by_model,
    by_topology,
    computing_of,
    of_models,
)
from clusterproof.plugins.evidence.perf.gpu_speed import GPU_TO_GPU, Speeds

Beside = Mapping[str, Speeds]
Read = Callable[[Node], Mapping[str, Speeds]]  # what a check compares on a node
NO_OTHERS: Beside = MappingProxyType({})


def compared_gpus(node: Node, of_copies: Mapping[str, Speeds]) -> Mapping[str, Speeds]:
    """By the names of `by_way`, with which GPUs of the node these compare: with all where no way of it is slower."""
    percent = node.threshold("load.slower_concern_percent")
    speeds_of_gpus: dict[str, Speeds] = {}
    for name, speeds in of_copies.items():
        separate = by_topology(node, {name: speeds})
        medians = [median(of_topology.values()) for of_topology in separate.values()]
        is_slower = medians and min(medians) < (1 - percent / 100) * max(medians)
        speeds_of_gpus |= separate if is_slower else dict.fromkeys(separate, speeds)
    return speeds_of_gpus


def shortfalls(node: Node, read: Read, compared_with: Beside = NO_OTHERS) -> Iterator[list[Shortfall]]:
    """How far GPUs are behind the best of their model on the node, and behind the median of its group's nodes.

    For each measurement and model.
    """
    for name, model, own, others in compared(node, read, compared_with):
        shared = None if UNKNOWN_WAYS in name else medians(node, read, model).get(name)
        of_each = (below_median(f"GPU {gpu}, {name}", speed, shared) for gpu, speed in own.items())
        yield [*below_best(own, name, others), *chain.from_iterable(of_each)]


def compared(node: Node, read: Read, compared_with: Beside) -> Iterator[tuple[str, str, Speeds, Speeds]]:
    """By measurement and model, the GPUs, and those that they are compared with: `compared_with`, or all."""
    for name, speeds in read(node).items():
        for model, others in by_model(node, compared_with.get(name, speeds), measured(node, name)).items():
            if own := {gpu: speed for gpu, speed in speeds.items() if gpu in others}:
                yield name, model, own, others


def all_copies(node: Node) -> Mapping[str, Speeds]:
    """All copies, however near the GPUs are to the others: one that is slower here may be farther away."""
    return node.gpu_bandwidth.speeds


def measured(node: Node, name: str) -> Speeds:
    """All GPUs of the node whose copies were measured like these, under one name; none if these are all."""
    return all_copies(node)[name.partition(OTHERS)[0]] if name.startswith(GPU_TO_GPU) else {}


def medians(node: Node, read: Read, model: str) -> Mapping[str, Median]:
    """What the group is compared by: the median of each node's GPUs of a model, as far as models are known."""
    models = [model] if model else sorted({*computing_of(node)})
    return node.group.medians(
        f"{read.__name__} {models}",
        lambda other: {
            name: median(of_model.values())
            for name, speeds in read(other).items()
            if (of_model := of_models(other, speeds, models, measured(other, name)))
        },
    )


def require_comparison(
    node: Node, read: Read, unit: str, compared_with: Beside = NO_OTHERS, *, has_limit: bool = False
) -> None:
    """Raise Incomplete for each GPU without any to compare with, or that is slower and may be farther away."""
    least, alone = 1 - node.threshold("load.slower_concern_percent") / 100, list[str]()
    for name, model, own, others in compared(node, read, compared_with):
        is_known, group_median = UNKNOWN_WAYS not in name, _comparable_median(medians(node, read, model).get(name))
        if is_known and group_median is not None:
            continue
        if group_median is None and OTHERS in name:
            group_median = _comparable_median(medians(node, all_copies, model).get(name.partition(OTHERS)[0]))
        is_enough = (is_known and has_limit) or (len(others) > 1 and any(others.values()))
        due = least * group_median if group_median is not None else 0.0 if is_enough else inf
        alone += [f"GPU {gpu}, {name}: {speed:.4g} {unit}" for gpu, speed in own.items() if speed < due]
    if alone or not (has_limit or read(node)):
        incomplete(f"{listed(alone) or 'nothing was measured'}; expected further GPUs or nodes to compare with")


def require_waived(node: Node) -> None:
    """Raise Incomplete for copies that nvbandwidth waived on this node, and made on others of its group."""
    if node.gpu_bandwidth.is_waived:
        own, by = all_copies(node), f" by {node.gpu_bandwidth.by}"
        for name, shared in medians(node, all_copies, "").items():
            if name.endswith(by) and name not in own and shared.is_comparable:
                incomplete(f"{name} waived; expected copies as on {shared.nodes} nodes")


def _comparable_median(shared: Median | None) -> float | None:
    return shared.value if shared and shared.is_comparable else None
