"""A small training step that is identical on every GPU: a digest of gradients and weights after each, in PyTorch.

All settings are deterministic, and inputs and weights consist of integers that are the same everywhere. So GPUs of one
kind, driver and library produce identical digests, and each repeats its own.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import CDLL, byref, c_int, c_size_t
from math import prod
from typing import Any, NamedTuple

import torch
from torch.nn.functional import gelu, layer_norm, softmax

from clusterproof.plugins.evidence.exact.on_node.gpus import on_each_gpu
from clusterproof.plugins.evidence.exact.on_node.payload import drawn, key_of
from clusterproof.plugins.evidence.exact.on_node.products import FLOAT32, Unit, choose

TYPE_CHECKING = False  # Python 3.8 cannot subscript what is in collections.abc
if TYPE_CHECKING:
    Change = Callable[[int, int, str, list[Any]], None]  # pass, step, "gradients" or "weights", and these

SEED = 20_260_101  # the same on all nodes and in all runs
STEPS = 16
LAYERS = 2
RATE, MOMENTUM = 0.05, 0.9
TYPES = ("float32", "bfloat16")
UNIT_BITS = 20  # of an input: an integer of this many bits, scaled to about 1
MAX_DIFFERING = 8  # steps that are described
MIN_PASSES = 2  # before a type counts
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it to be deterministic
LIBRARY = re.compile(r"(?P<path>/(?:.*/)?(?P<name>lib(?:cublas|cublasLt|cudnn|cudart)\.so[.\d]{0,40}))$")
OVERRIDES = (  # variables that override how libraries compute
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
)
MAX_VALUE = 32  # characters of one


class Size(NamedTuple):
    """The size of the step: number of sequences, their length and width."""

    sequences: int
    tokens: int
    width: int


ON_GPU = Size(8, 512, 1024)


def main(request: dict[str, Any]) -> None:
    """Print the answers of the GPUs, as one JSON object."""
    os.environ[WORKSPACE[0]] = WORKSPACE[1]

    def compute(gpu: int) -> Iterator[dict[str, Any]]:
        for types in repeated(f"cuda:{gpu}", ON_GPU, request["budget_s"]):
            yield {"libraries": software(), "types": types}

    answers = on_each_gpu(request, compute)
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": answers}))  # noqa: T201


def software() -> list[str]:
    """What determines results besides PyTorch: the loaded CUDA libraries, and overrides."""
    names = {f"{name}={os.environ[name][:MAX_VALUE]}" for name in OVERRIDES if name in os.environ}
    with suppress(OSError), open("/proc/self/maps") as file:
        for match in filter(None, map(LIBRARY.search, map(str.rstrip, file))):
            names |= {match["name"], *version_of(match["path"], match["name"])}
    return sorted({*names, f"cuDNN {torch.backends.cudnn.version()}"})


def version_of(path: str, name: str) -> list[str]:
    """A loaded library's version: in wheels, the file name only has the major version."""
    with suppress(OSError, AttributeError):
        library = CDLL(path)
        if name.startswith("libcublasLt."):
            library.cublasLtGetVersion.restype = c_size_t
            return [f"cuBLASLt {library.cublasLtGetVersion()}"]
        if name.startswith("libcublas."):
            numbers = [c_int() for _ in range(3)]  # major, minor, patch
            if not any(library.cublasGetProperty(which, byref(number)) for which, number in enumerate(numbers)):
                return [f"cuBLAS {'.'.join(str(number.value) for number in numbers)}"]
    return []


def repeated(
    device: str, size: Size, budget_s: float, change: Change = lambda *_: None, types: tuple[str, ...] = TYPES
) -> Iterator[list[dict[str, Any]]]:
    """The digests of all steps by type, repeated for so many seconds, at least twice, and the steps that differed.

    Yields all results whenever there are new ones: the device may fail next.
    """
    deterministic()
    types_of_steps: list[dict[str, Any]] = []
    for name in types:
        began = time.monotonic()
        try:
            first = trained(device, size, name, 0, change)
        except (RuntimeError, TypeError) as refused:
            types_of_steps.append({"type": name, "why": " ".join(str(refused).split())[:120]})
            continue
        of_type: dict[str, Any] = {"type": name, "passes": 1, "digests": first, "differing": []}
        types_of_steps.append(of_type)
        while of_type["passes"] < MIN_PASSES or time.monotonic() - began < budget_s / len(types):
            again = trained(device, size, name, of_type["passes"], change)
            steps = [step for step, (before, after) in enumerate(zip(first, again)) if before != after]
            if steps and len(of_type["differing"]) < MAX_DIFFERING:
                of_type["differing"].append({"pass": of_type["passes"], "step": steps[0]})
            of_type["passes"] += 1
            if steps or of_type["passes"] == MIN_PASSES:
                yield types_of_steps
    yield types_of_steps


def deterministic() -> None:
    """Make PyTorch deterministic. Settings that a version lacks are not needed there."""
    choose(Unit(None, None, torch.matmul, FLOAT32))
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    with suppress(AttributeError):
        torch.backends.cudnn.allow_tf32 = False


def trained(device: str, size: Size, kind: str, number: int, change: Change) -> list[str]:
    """The digest after each step: of all gradients, then of all weights."""
    own = getattr(torch, kind)
    weights = [
        _real(index, shape, device).mul_(shape[0] ** -0.5).requires_grad_() for index, shape in enumerate(_shapes(size))
    ]
    momenta = [torch.zeros_like(matrix) for matrix in weights]
    inputs = (size.sequences, size.tokens, size.width)
    digests = []
    for step in range(STEPS):
        sample, due = (_real(1000 + 2 * step + side, inputs, device) for side in (0, 1))
        loss = (_forward(sample, weights, own) - due).square().mean()
        gradients = list(torch.autograd.grad(loss, weights))
        change(number, step, "gradients", gradients)
        digest = digest_of(gradients)
        with torch.no_grad():
            for weight, momentum, gradient in zip(weights, momenta, gradients):
                momentum.mul_(MOMENTUM).add_(gradient)
                weight.sub_(momentum * RATE)
            change(number, step, "weights", weights)
        digests.append(digest + digest_of(weights))
    return digests


def _shapes(size: Size) -> list[tuple[int, int]]:
    wide = size.width
    return [(wide, wide), (wide, wide), (wide, wide), (wide, wide), (wide, 4 * wide), (4 * wide, wide)] * LAYERS


def _real(index: int, shape: tuple[int, ...], device: str) -> Any:
    """Numbers from -1 to 1, exact in float32: made of integers, they are the same on every device."""
    whole = drawn(key_of(SEED, index, 0), prod(shape), device) >> 20 & ((1 << UNIT_BITS) - 1)
    return ((whole - (1 << UNIT_BITS - 1)).float() / (1 << UNIT_BITS - 1)).reshape(shape)


def _forward(sample: Any, weights: list[Any], kind: Any) -> Any:
    """Attention and a two-layer network, twice; products in this type, everything else in float32."""

    def times(left: Any, right: Any) -> Any:
        return (left.to(kind) @ right.to(kind)).float()

    state = sample
    for layer in range(LAYERS):
        query, key, value, out, up, down = weights[6 * layer : 6 * layer + 6]
        normed = layer_norm(state, state.shape[-1:])
        scores = times(times(normed, query), times(normed, key).transpose(-1, -2)) * state.shape[-1] ** -0.5
        state = state + times(times(softmax(scores, -1), times(normed, value)), out)
        state = state + times(gelu(times(layer_norm(state, state.shape[-1:]), up)), down)
    return state


def digest_of(matrices: list[Any]) -> str:
    """16 hexadecimal digits that depend on every bit: integers, summed in any order."""
    digest = 0
    for number, matrix in enumerate(matrices):
        bits = matrix.detach().contiguous().view(torch.int32).reshape(-1).long()
        weights = drawn(key_of(SEED, -number - 1, 1), bits.numel(), matrix.device.type) | 1
        digest += int((bits * weights).sum())
    return f"{digest % (1 << 64):016x}"
