"""Exact arithmetic: integers whose sums no order of summation changes, so that any other bit is a fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.verdict import fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.exact import OfType

Why = TypeVar("Why")
Thing = TypeVar("Thing")

pytestmark = [mark.perf, mark.hyperpod_performance_debugger("G")]


@mark.gpu
@evidence("dcgmi diag -r 4, which finds less: products of integers below 2^24 in torch.float32, against torch.int64")
def test_gpu_exact(node: Node) -> None:
    """Exact products of the GPU.

    All GPUs multiply at once, in every data type that they have, integers chosen so that each partial sum is exact: the
    result depends on no order, library or GPU, and is compared bit by bit. It is held against checksums of the
    operands, no stored copy. A product that is wrong is repeated: a stuck bit comes again, one that flips does not. NaN
    and losses that leap show one silent fault of a hundred.

    Remedy (replace): Take the GPU out of use: it computes wrong without an error. Run the check again on it alone
    (--exact-s 600); have it replaced also where the fault does not come again.
    """
    untested: dict[tuple[str, str], list[int]] = {}
    for number, gpu in enumerate(node.gpu_exact.gpus):
        with part:
            if gpu.error:
                incomplete(f"GPU {number}: {gpu.error[:200]}; expected products of every type")
            for one in each(gpu.types, lambda one: one):
                with part:
                    say_wrong(f"GPU {number}", one)
                    if not one.products and not one.has_none:
                        untested.setdefault((one.why or "no result could be verified", one.type), []).append(number)
    say_untested(untested, "GPU")


@mark.host
@evidence("stressapptest -W -s 60, or stress-ng --cpu 0 --verify --matrix 0 --vm 1 --vm-method all")
def test_cpu_exact(node: Node) -> None:
    """Exact arithmetic of the cores, and host memory.

    Bound to each core: dot products of integers, in float64 and in integers; powers modulo a prime; a chain of hashes;
    with PyTorch also products of matrices in every type, which take the vector and matrix units. Beside it each core
    writes a part of the memory that is available, a pattern and its complement, and reads it again. One pass.

    Remedy (replace): Take the node out of use and have it replaced: a core or its memory gives wrong results without
    an error. Run the check again before, to see whether the same core is named.
    """
    found = node.cpu_exact.found
    for one in each(found.wrong, lambda one: one):
        with part:
            fail_if(one.where, f"core {one.core}, {one.type}: {one.words}; expected every bit right")
    for why, cores in by_why((one.error, one.core) for one in each(found.errors, lambda one: one)).items():
        with part:
            incomplete(f"{number_of(len(cores), 'core')} ({listed(map(str, cores))}): {why}; expected an answer")
    with part:
        if found.without_torch:
            incomplete(f"vector units not tested: {found.without_torch[:200]}; expected a Python with PyTorch")
    untested: dict[tuple[str, str], list[int]] = {}
    for kind in each(found.types, lambda one: one):
        with part:
            if not kind.products and not kind.has_none:
                untested[kind.why or "no result could be verified", kind.type] = []
    say_untested(untested, "core")
    if not found.types:
        incomplete("no core computed anything; expected products of every type")


def say_wrong(unit: str, one: OfType) -> None:
    """Fail where products of a type were wrong, with the place of the first."""
    if one.why or one.has_none:
        return
    shares = f"{one.wrong_products} wrong in {number_of(one.products or 0, 'product')}"
    places = listed(wrong.words for wrong in each(one.wrong, lambda wrong: wrong))
    fail_if(one.wrong_products, f"{unit}, {one.type}: {shares}: {places}; expected every bit right")


def say_untested(untested: Mapping[tuple[str, str], list[int]], unit: str) -> None:
    """Which types no product was made of, by the reason and the units that have it."""
    types = by_why(((why, tuple(numbers)), kind) for (why, kind), numbers in untested.items())
    for (why, numbers), kinds in types.items():
        on = f" on {unit} {listed(map(str, numbers))}" if numbers else ""
        with part:
            incomplete(f"{listed(kinds)} not tested{on}: {why}; expected products of every type that the {unit} has")


def by_why(found: Iterable[tuple[Why, Thing]]) -> dict[Why, list[Thing]]:
    """What has one reason, together."""
    data: dict[Why, list[Thing]] = {}
    for why, one in found:
        data.setdefault(why, []).append(one)
    return data
