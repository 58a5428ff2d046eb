"""Exact integer arithmetic under load, on GPUs and cores, in collectives and in training steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.exact.facts import (
    TypeProducts,
    WrongResult,
    gpu_called,
    multiplied_by,
    votes_on_types,
    wrong_everywhere,
    wrong_on_nodes,
)
from clusterproof.plugins.evidence.exact.facts_collective import Blame
from clusterproof.plugins.evidence.exact.facts_step import Ballot, Opinion, Steps, votes_of
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.facts_node import require_every_gpu

pytestmark = [mark.perf, mark.hyperpod_node_debugger("G")]


Why = TypeVar("Why")
Thing = TypeVar("Thing")


@mark.gpu
@evidence("dcgmi diag -r 4, which finds less: products of integers below 2^24 in torch.float32, against torch.int64")
def test_gpu_exact(node: Node) -> None:
    """Exact products of the GPU.

    All GPUs multiply integer matrices at once, in every data type they support. The integers are chosen so that every
    partial sum is exact: the result does not depend on order, library or GPU, and every bit is verified by checksums of
    the operands, not against a stored copy. A wrong product is repeated: a stuck bit fails again, a flipped one does
    not. NaN values and loss spikes reveal only about one in a hundred of these silent faults.

    Remedy (replace): Drain the node: the GPU computes wrong results without any error. Run the check again on this node
    for longer (--exact-s 600), and have the GPU replaced even if the fault does not show again. If the message mentions
    software, compare PyTorch and the CUDA libraries with other nodes instead.
    """
    untested: dict[tuple[str, str], list[int]] = {}
    gpus = node.gpu_exact.gpus
    everywhere, multiplied = wrong_everywhere(gpus), multiplied_by(gpus)
    on_nodes = wrong_on_nodes(
        node.group.values("gpu_exact", lambda other: votes_on_types(other.gpu_exact.gpus)).values()
    )
    for number, gpu in enumerate(gpus):
        called = gpu_called(number, gpu.address)
        with part:
            for kind in gpu.types:
                with part:
                    if kind.type not in everywhere and kind.type in on_nodes and kind.wrong:
                        say_wrong_everywhere({kind.type: [*kind.wrong]}, f"every GPU of {on_nodes[kind.type]} nodes")
                    elif kind.type not in everywhere:
                        say_wrong(called, kind)
                with part:
                    if kind.gap and not gpu.error:
                        is_alone = (known(lambda: gpu.name, ""), kind.type) in multiplied  # noqa: B023
                        why = f"{kind.gap}, and other GPUs of its name multiply it" if is_alone else kind.gap
                        untested.setdefault((why, kind.type), []).append(number)
        with part:
            if gpu.gap:
                incomplete(f"{called}: {gpu.gap}; expected products of every type, on all SMs")
    say_wrong_everywhere(everywhere, "every GPU")
    with part:
        require_every_gpu(node, len(gpus), node.gpu_exact.given)
    say_untested(untested, "GPU")


@mark.host
@evidence("stressapptest -W -s 60, or stress-ng --cpu 0 --verify --matrix 0 --vm 1 --vm-method all")
def test_cpu_exact(node: Node) -> None:
    """Exact arithmetic of the cores, and host memory.

    Runs pinned to each core: integer dot products, in float64 and in integers; powers modulo a prime; a chain of
    hashes; and, with PyTorch, matrix products in every type, which use the vector and matrix units. Each core also
    writes a pattern and its complement to a share of the available memory and reads both back, once.

    Remedy (replace): Run the check again to see whether it names the same core, then drain the node and have it
    replaced: a core or its memory gives wrong results without any error.
    """
    cores = node.cpu_exact.found
    everywhere = cores.wrong_everywhere
    say_wrong_everywhere(everywhere, "every core")
    for wrong in each(cores.wrong, lambda wrong: wrong):
        with part:
            is_own = wrong.type not in everywhere
            fail_if(is_own, f"core {wrong.core}, {wrong.type}: {wrong.description}; expected every bit right")
    for why, numbers in by_why((error.error, error.core) for error in each(cores.errors, lambda error: error)).items():
        with part:
            incomplete(f"{number_of(len(numbers), 'core')} ({listed(map(str, numbers))}): {why}; expected an answer")
    with part:
        if cores.online and cores.cores < cores.online:
            incomplete(f"{cores.cores} of {cores.online} CPUs were tested; expected all of them")
    with part:
        if cores.without_torch:
            incomplete(f"vector units not tested: {cores.without_torch[:200]}; expected a Python with PyTorch")
    untested = each(cores.types, lambda kind: (kind.gap, kind.type))
    say_untested({gap: [] for gap in untested if gap[0]}, "core")
    if not cores.types:
        incomplete("no core computed anything; expected products of every type")


def say_wrong(unit: str, kind: TypeProducts) -> None:
    """Fail if products of a type were wrong, with the location of the first."""
    if kind.why or kind.has_none:
        return
    described = known(lambda: kind.wrong, ())
    positions = listed(wrong.description for wrong in each(described, lambda wrong: wrong))
    count = max(known(lambda: kind.wrong_products, 0), len(described))
    shares = f"{count} wrong in {number_of(kind.products or 0, 'product')}"
    fail_if(count, f"{unit}, {kind.type}: {shares}: {positions}; expected every bit right")


def say_wrong_everywhere(everywhere: Mapping[str, list[WrongResult]], units: str) -> None:
    """A concern if a library multiplies wrong: no hardware needs to be replaced for that."""
    for name, of_units in everywhere.items():
        first = f"{units} (first {of_units[0].description})"
        concern_if(
            of_units,
            f"{name}: wrong each time on {first}: differs by software, none is named; expected every bit right",
        )


def say_untested(untested: Mapping[tuple[str, str], list[int]], unit: str) -> None:
    """Report the types of which no product was made, by reason and by unit."""
    types = by_why(((why, tuple(numbers)), kind) for (why, kind), numbers in untested.items())
    for (why, numbers), kinds in types.items():
        on = f" on {unit} {listed(map(str, numbers))}" if numbers else ""
        with part:
            incomplete(f"{listed(kinds)} not tested{on}: {why}; expected products of every type that the {unit} has")


def by_why(reasons: Iterable[tuple[Why, Thing]]) -> dict[Why, list[Thing]]:
    """Group what has the same reason."""
    by_reason: dict[Why, list[Thing]] = {}
    for why, thing in reasons:
        by_reason.setdefault(why, []).append(thing)
    return by_reason


@mark.gpu
@evidence(
    "all_reduce_perf -b 1G -e 1G -g 8 -c 1 (and reduce_scatter_perf, all_gather_perf, alltoall_perf): column #wrong"
)
def test_exact_collective(node: Node) -> None:
    """Exact collectives of the GPUs.

    Runs all-reduce, reduce-scatter, all-gather and all-to-all over NCCL on integers whose sums are exact in every data
    type. Each GPU knows its result in advance, bit for bit, whichever ring, tree or switch computes it. The pattern of
    wrong elements, by source and destination GPU, tells a bad GPU from a bad link.

    Remedy (replace): Drain the node: its GPUs exchange wrong gradients without any error. Run the check again to see
    whether it names the same GPU or link, then have that replaced.
    """
    result = node.exact_collective.found
    blame = Blame.of([result])
    fail_if(blame.blocks, f"{blame.description}; expected every bit right")
    with part:
        if result.gap:
            incomplete(f"{result.gap}; expected nccl")
    failed: dict[str, list[int]] = {}
    lacking: dict[tuple[str, str], list[int]] = {}
    for number, gpu in enumerate(result.answered):
        with part:
            if gpu.error:
                failed.setdefault(gpu.error[:200], []).append(number)
            for operation in gpu.operations:
                with part:
                    if operation.why or operation.rounds < 1:
                        why = (operation.why or "no round was made")[:200]
                        lacking.setdefault((operation.name, why), []).append(number)
    for why, numbers in failed.items():
        with part:
            incomplete(f"GPU {listed(map(str, numbers))}: {why}; expected the result of each operation")
    for (name, why), numbers in lacking.items():
        with part:
            incomplete(f"{name} not tested on GPU {listed(map(str, numbers))}: {why}; expected each operation")
    with part:
        if len(result.answered) < result.of_each_node:
            incomplete(f"{number_of(len(result.answered), 'GPU')} answered; expected {result.of_each_node}")
    with part:
        require_every_gpu(node, result.of_each_node, node.exact_collective.given)


@mark.gpu
@evidence(
    "torch.use_deterministic_algorithms(True), CUBLAS_WORKSPACE_CONFIG=:4096:8: sha256 of all weights after N steps"
)
def test_exact_step(node: Node) -> None:
    """The same training steps on every GPU.

    Every GPU trains the same small network from the same inputs with deterministic settings, and hashes all gradients
    and weights after each step. GPUs of the same model, driver and libraries must get the same digests, and each GPU
    must reproduce its own. A GPU is at fault if its result is unique while another GPU of its node agrees with the
    majority. If no GPU of the node agrees, or several GPUs share each of two results, the cause may be a software
    difference.

    Remedy (replace): Drain the node if one of its GPUs ends up with different weights than its neighbours, and run
    exact_step and gpu_exact again on that GPU. If the message mentions software, first compare the driver, PyTorch,
    CUDA libraries and their settings with other nodes.
    """
    own = node.exact_step
    steps = list(own.steps())
    others = Ballot(node.group.values("exact_step", votes_of_node), steps)
    for gpu_steps in steps:
        with part:
            say_differs(gpu_steps, others)
    say_software(steps, others)
    say_unknown(steps, others)
    with part:
        require_every_gpu(node, len(own.gpus), own.given)
    for number, gpu in enumerate(own.gpus):
        with part:
            for of_type in gpu.types:
                with part:
                    if of_type.why:
                        incomplete(f"GPU {number}, {of_type.type}: {of_type.why}; expected the digest of each step")
        with part:
            if gpu.error:
                called = gpu_called(number, known(lambda: gpu.address, None))  # noqa: B023
                incomplete(f"{called}: {gpu.error[:200]}; expected the digest of each step")


def votes_of_node(node: Node) -> Mapping[str, str | None]:
    """A node's votes on its GPUs within its group."""
    return votes_of(node.exact_step)


def say_differs(steps: Steps, others: Ballot) -> None:
    """Fail if a GPU differs from all others, or from itself while they do not."""
    unsteady = others.is_unsteady_alone(steps)
    called = gpu_called(steps.gpu, steps.address)
    fail_if(unsteady, f"{called}, {steps.type}: other results when it repeats its steps; expected the same bits")
    if others.of(steps) is Opinion.WRONG and (steps.is_steady or unsteady):
        _, count = others.count(steps)
        where = f"from step {others.first_step(steps)} on another result than most of {count} GPUs of its kind"
        fail_if(steps, f"{called}, {steps.type}: {where} with the same software; expected the same bits")


def say_software(steps: list[Steps], others: Ballot) -> None:
    """A concern if results differ in a way that no single GPU explains."""
    differing: dict[str, list[int]] = {}
    for gpu_steps in steps:
        agreeing, count = others.count(gpu_steps)
        counted = f"{agreeing} of {count} GPUs of one kind, driver and library have this result"
        message = {
            Opinion.SOFTWARE: f"{counted}, others another: differs by software, no GPU is named",
            Opinion.EITHER: f"{counted}, most another, but none beside it on its node: its software or the GPU",
        }.get(others.of(gpu_steps))
        if message:
            differing.setdefault(f"{gpu_steps.type}: {message}", []).append(gpu_steps.gpu)
        if not gpu_steps.is_steady and not others.is_unsteady_alone(gpu_steps):
            where = f"on {others.unsteady[gpu_steps.configuration]} of {count} GPUs"
            message = f"other results when steps are repeated, {where}: its software or the GPU"
            differing.setdefault(f"{gpu_steps.type}: {message}", []).append(gpu_steps.gpu)
    for message, gpus in differing.items():
        with part:
            concern_if(gpus, f"GPU {listed(map(str, gpus))}: {message}; expected one result")


def say_unknown(steps: list[Steps], others: Ballot) -> None:
    """Incomplete if there are no other GPUs to compare with."""
    alone: dict[str, list[int]] = {}
    for gpu_steps in steps:
        if others.of(gpu_steps) is Opinion.UNKNOWN:
            alone.setdefault(gpu_steps.configuration, []).append(gpu_steps.gpu)
    for kind, gpus in alone.items():
        with part:
            incomplete(
                f"GPU {listed(map(str, gpus))}: no majority among GPUs like it ({kind[:300]}); expected three at least"
            )
