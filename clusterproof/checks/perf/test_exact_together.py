"""Exact arithmetic of GPUs together: what they exchange, and training steps that all of them make alike."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.collective import Blame
from clusterproof.plugins.evidence.perf.step import Ballot, Opinion, Steps, votes_of

pytestmark = [mark.gpu, mark.perf, mark.hyperpod_performance_debugger("G")]


@evidence(
    "all_reduce_perf -b 1G -e 1G -g 8 -c 1 (and reduce_scatter_perf, all_gather_perf, alltoall_perf): column #wrong"
)
def test_exact_collective(node: Node) -> None:
    """Exact collectives of the GPUs.

    All-reduce, reduce-scatter, all-gather and all-to-all over NCCL, of integers whose sums are exact in every data
    type: each GPU knows beforehand every bit that it must have, whatever ring, tree or switch added it up. Which GPUs
    have wrong elements of which others tells a GPU from a link.

    Remedy (replace): Take the node out of use: gradients that GPUs exchange on it are wrong without an error. Run the
    check again to see whether the same GPU or link is named, and have it replaced.
    """
    found = node.exact_collective.found
    blame = Blame.of([found])
    fail_if(blame.blocks, f"{blame.words}; expected every bit right")
    with part:
        if found.gap:
            incomplete(f"{found.gap}; expected nccl")
    failed: dict[str, list[int]] = {}
    lacking: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(found.answered):
        with part:
            if one.error:
                failed.setdefault(one.error[:200], []).append(place)
            for operation in one.operations:
                with part:
                    if operation.why or not operation.rounds:
                        why = (operation.why or "no round was made")[:200]
                        lacking.setdefault((operation.name, why), []).append(place)
    for why, places in failed.items():
        with part:
            incomplete(f"GPU {listed(map(str, places))}: {why}; expected the result of each operation")
    for (name, why), places in lacking.items():
        with part:
            incomplete(f"{name} not tested on GPU {listed(map(str, places))}: {why}; expected each operation")
    with part:
        if len(found.answered) < found.of_each_node:
            incomplete(f"{number_of(len(found.answered), 'GPU')} answered; expected {found.of_each_node}")


@evidence(
    "torch.use_deterministic_algorithms(True), CUBLAS_WORKSPACE_CONFIG=:4096:8: sha256 of all weights after N steps"
)
def test_exact_step(node: Node) -> None:
    """The same training steps on every GPU.

    Forward, backward and update of a small network with deterministic settings, from inputs that are the same
    everywhere. A digest of all gradients and weights follows each step. GPUs of one kind with the same driver and
    libraries have the same digests, and each its own when it repeats them. One whose result nobody else has is wrong
    where another of its node has that of most; where none has, or several GPUs have each of two results, software may
    differ.

    Remedy (replace): Take a GPU out of use that trains to other weights than its neighbours do. Run exact_step and
    gpu_exact again on it. Where the message says software, first compare driver, PyTorch, CUDA libraries and their
    settings with those of other nodes.
    """
    own = node.exact_step
    steps = list(own.steps())
    others = Ballot(node.group.values("exact_step", votes_of_node), steps)
    for one in steps:
        with part:
            say_wrong(one, others)
    say_software(steps, others)
    say_unknown(steps, others)
    for number, gpu in enumerate(own.gpus):
        with part:
            if gpu.error:
                incomplete(f"GPU {number}: {gpu.error[:200]}; expected the digest of each step")
            for of_type in each(gpu.types, lambda of_type: of_type):
                with part:
                    if of_type.why:
                        incomplete(f"GPU {number}, {of_type.type}: {of_type.why}; expected the digest of each step")


def votes_of_node(node: Node) -> Mapping[str, str | None]:
    """What a node's GPUs count for in its group."""
    return votes_of(node.exact_step)


def say_wrong(one: Steps, others: Ballot) -> None:
    """Fail where a GPU differs from all others, or from itself where they do not."""
    unsteady = not one.is_steady and others.is_unsteady_alone(one)
    fail_if(unsteady, f"GPU {one.gpu}, {one.type}: other results when it repeats its steps; expected the same bits")
    if others.of(one) is Opinion.WRONG:
        _, count = others.count(one)
        where = f"from step {others.first_step(one)} on another result than most of {count} GPUs of its kind"
        fail_if(one, f"GPU {one.gpu}, {one.type}: {where} with the same software; expected the same bits")


def say_software(steps: list[Steps], others: Ballot) -> None:
    """A concern where results differ in a way that no single GPU explains."""
    found: dict[str, list[int]] = {}
    for one in steps:
        alike, count = others.count(one)
        counted = f"{alike} of {count} GPUs of one kind, driver and library have this result"
        said = {
            Opinion.SOFTWARE: f"{counted}, others another: differs by software, no GPU is named",
            Opinion.EITHER: f"{counted}, most another, but none beside it on its node: its software or the GPU",
        }.get(others.of(one))
        if said:
            found.setdefault(f"{one.type}: {said}", []).append(one.gpu)
        if not one.is_steady and not others.is_unsteady_alone(one):
            where = (
                "and no GPU beside it repeats them: its software or the GPU"
                if others.is_steady_elsewhere(one)
                else "on most GPUs: differs by software, no GPU is named"
            )
            found.setdefault(f"{one.type}: other results when steps are repeated, {where}", []).append(one.gpu)
    for words, gpus in found.items():
        with part:
            concern_if(gpus, f"GPU {listed(map(str, gpus))}: {words}; expected one result")


def say_unknown(steps: list[Steps], others: Ballot) -> None:
    """Incomplete where there is nobody to compare with."""
    found: dict[str, list[int]] = {}
    for one in steps:
        if others.of(one) is Opinion.UNKNOWN:
            found.setdefault(one.alike, []).append(one.gpu)
    for alike, gpus in found.items():
        with part:
            incomplete(
                f"GPU {listed(map(str, gpus))}: no majority among GPUs like it ({alike[:300]}); expected three at least"
            )
