"""Products of exact integers in PyTorch, their correct values, and the checksums that verify these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from clusterproof.plugins.evidence.exact.on_node.locations import WrongElement
from clusterproof.plugins.evidence.exact.on_node.operands import STEP, Kind, Operands, data_sets, magnitudes

SCALES = 2  # range of exponents for scaling rows and columns
WEIGHT_BITS = 62
PROBED = 8192  # terms of the products that probe how a type is multiplied
BEYOND_TF32 = 4097.0  # 13 bits, of which TF32 keeps 11
AS_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
FLOAT32, TF32 = "highest", "high"  # PyTorch's settings for float32 products
NEEDED = {"bfloat16": (8, 0), "tfloat32": (8, 0), "int8": (7, 5), "float8_e4m3fn": (8, 9), "float8_e5m2": (8, 9)}


class Unit(NamedTuple):
    """How a type is multiplied on this device."""

    left: Any
    right: Any
    multiply: Callable[[Any, Any], Any]
    precision: str = FLOAT32


class Unavailable(Exception):  # noqa: N818 - an answer, not an error
    """PyTorch does not multiply this type on this device."""


class Factors(NamedTuple):
    """Two integer matrices, and the powers of two that scale the rows of one and the columns of the other."""

    left: Any
    right: Any
    row_scale: Any
    column_scale: Any


def draw_factors(
    operands: Operands, rows: int, columns: int, seed: int, complement: bool, device: str, batch: tuple[int, ...] = ()
) -> Factors:
    """The operands of one product, or a batch: with random signs; or the complement, with the largest sums.

    The complement inverts each varying bit, and in each of its sums all products have the same sign.
    """
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> Any:
        return torch.randint(low, high + 1, (*batch, *shape), generator=generator, device=device, dtype=torch.int64)

    def integers(bits: int, *shape: int) -> Any:
        low, high = magnitudes(bits)
        drawn = draw(low, high, *shape)
        return low + high - drawn if complement else drawn

    def signs(*shape: int) -> Any:
        return 2 * draw(0, 1, *shape) - 1

    left, right = (
        integers(operands.left_bits, rows, operands.terms),
        integers(operands.right_bits, operands.terms, columns),
    )
    if complement:
        left, right = left * signs(rows, 1), right * signs(1, columns)
    else:
        left, right = left * signs(rows, operands.terms), right * signs(operands.terms, columns)
    if operands.is_selecting:
        places = torch.arange(operands.terms, device=device).unsqueeze(-1)
        right = right * (places == torch.arange(columns, device=device) * 7 % operands.terms)
    return Factors(left, right, draw(-SCALES, SCALES, rows, 1), draw(-SCALES, SCALES, 1, columns))


def disagreeing(left: Any, right: Any, product: Any, seed: int) -> tuple[Any, Any]:
    """The rows and columns of an integer product, in float64, that disagree with its checksums.

    Sums weighted by random odd numbers, modulo 2^64: a single wrong element always shows in its row and its column, and
    several in a row cancel with probability 2^-62.
    """
    generator = torch.Generator(device=left.device)
    generator.manual_seed(seed)

    def weights(length: int) -> Any:
        drawn = torch.randint(1 << WEIGHT_BITS, (length,), generator=generator, device=left.device, dtype=torch.int64)
        return drawn | 1

    whole = product.long()
    broken = whole.double() != product
    by_column, by_row = weights(product.shape[-1]), weights(product.shape[-2]).unsqueeze(-1)
    due = (left * (right * by_column).sum(-1).unsqueeze(-2)).sum(-1)
    rows = ((whole * by_column).sum(-1) != due) | broken.any(-1)
    due = ((left * by_row).sum(-2).unsqueeze(-1) * right).sum(-2)
    columns = ((whole * by_row).sum(-2) != due) | broken.any(-2)
    return rows, columns


def exact_row(left: Any, right: Any, row: int) -> Any:
    """One row of a product, computed with integers alone."""
    return (left[row].unsqueeze(-1) * right).sum(0).double()


def operands_of(factors: Factors, operands: Operands, kind: Kind, unit: Unit) -> tuple[Any, Any]:
    """The scaled matrices to multiply: floats around 1."""
    if kind.name == "int8":
        return factors.left.to(unit.left), factors.right.to(unit.right)
    left = factors.left.double() * torch.exp2((factors.row_scale - operands.left_bits + 1).double())
    right = factors.right.double() * torch.exp2((factors.column_scale - operands.right_bits + 1).double())
    return left.to(unit.left), laid(right.to(unit.right), kind)


def laid(right: Any, kind: Kind) -> Any:
    """The right operand in its required memory layout: by columns for FP8, else by rows."""
    return right.transpose(-1, -2).contiguous().transpose(-1, -2) if kind.name.startswith("float8") else right


def due(product: Any, factors: Factors, operands: Operands, kind: Kind, result: Any) -> Any:
    """The correct product to the last bit, from the integer one: scaled, in the type of the result."""
    if kind.name == "int8":
        return product.to(result)
    powers = factors.row_scale + factors.column_scale - operands.left_bits - operands.right_bits + 2
    return (product * torch.exp2(powers.double())).to(result)


def differing(got: Any, expected: Any) -> Any:
    """Where two results of a type differ in any bit."""
    kind = AS_INTEGERS[got.element_size()]
    return got.view(kind) != expected.view(kind)


def wrong_elements(got: Any, expected: Any, most: int) -> list[WrongElement]:
    """The first of the elements that differ."""
    kind = AS_INTEGERS[got.element_size()]
    mask = (1 << 8 * got.element_size()) - 1
    places = differing(got, expected).nonzero()[:most].tolist()
    bits = [[matrix.view(kind)[row, column].item() & mask for matrix in (expected, got)] for row, column in places]
    return [WrongElement(row, column, *both) for (row, column), both in zip(places, bits)]


def unit_of(kind: Kind, device: str, size: int) -> Unit:
    """How a type is multiplied on a device, with sums as wide as PyTorch offers. Raises Unavailable.

    A library that rounds operands, or adds up in fewer bits than the type's accumulator has, makes every element of a
    probe wrong in the same way: that is no fault of the device, unless it has the simplest of products wrong too.
    """
    problem = f"PyTorch {torch.__version__} has no product of {kind.name}"
    for unit in _multiplications(kind, device):
        try:
            choose(unit)
            if _is_uniformly_wrong(unit, kind, device, size, [1.0], [1.0]):
                return unit
            lost = [why for why, *probe in _probes(kind) if _is_uniformly_wrong(unit, kind, device, size, *probe)]
            if kind.name == "tfloat32" and not _is_uniformly_wrong(unit, kind, device, size, [BEYOND_TF32], [1.0]):
                lost.append("multiplies float32 in place of tfloat32")
        except (RuntimeError, TypeError, AttributeError, NotImplementedError, ValueError) as refused:
            problem = " ".join(str(refused).split())[:120]
            continue
        if not lost:
            return unit
        problem = f"PyTorch {torch.__version__} {lost[0]}"
    raise Unavailable(problem)


def _probes(kind: Kind) -> Iterator[tuple[str, list[float], list[float]]]:
    """Known library shortcuts, and a row and a column that reveal each; padded with zeros.

    All bits of an operand; and 1, the accumulator's maximum, and that subtracted: the sum is 1.
    """
    whole = float((1 << kind.significand) - 1)
    yield f"rounds operands of {kind.significand} bits", [whole], [1.0]
    operands = next(data_sets(kind, PROBED // 2))
    wide, narrow = (float(magnitudes(bits)[1]) for bits in (operands.left_bits, operands.right_bits))
    zeros = [0.0] * (STEP - 1)
    terms = operands.terms - STEP  # that the 1 has room beside them
    signs = [narrow] * terms + [-narrow] * terms
    yield (
        f"adds up in fewer than {kind.accumulator} bits",
        [1.0, *zeros, *[wide] * 2 * terms],
        [1.0, *zeros, *signs],
    )


def _is_uniformly_wrong(unit: Unit, kind: Kind, device: str, size: int, row: list[float], column: list[float]) -> bool:
    """Whether a product of equal rows and columns, whose sum begins with the only remaining term, is wrong."""
    zeros = [0.0] * (PROBED - len(row))
    left, right = (torch.tensor([*factor, *zeros], dtype=torch.float64, device=device) for factor in (row, column))
    rows, columns = left.repeat(size, 1).to(unit.left), right.unsqueeze(-1).repeat(1, size).to(unit.right)
    result = unit.multiply(rows, laid(columns, kind)).double().nan_to_num(posinf=0.0, neginf=0.0)
    return bool((result == result[0, 0]).all().item() and result[0, 0].item() != row[0] * column[0])


def _multiplications(kind: Kind, device: str) -> list[Unit]:
    name = kind.name
    if name == "tfloat32":
        tensor_cores = Unit(torch.float32, torch.float32, torch.matmul, TF32)
        return [tensor_cores] if device.startswith("cuda") else []
    if name == "int8":
        has_one = hasattr(torch, "_int_mm")
        return [Unit(torch.int8, torch.int8, torch._int_mm)] if has_one else []  # noqa: SLF001 - there is no other
    if name.startswith("float8"):
        return _multiplications_of_float8(name, device)
    own = getattr(torch, name)
    wide = Unit(own, own, lambda left, right: torch.mm(left, right, out_dtype=torch.float32))
    plain = Unit(own, own, torch.matmul)
    return [wide, plain] if name in ("float16", "bfloat16") else [plain]


def _multiplications_of_float8(name: str, device: str) -> list[Unit]:
    left, right = getattr(torch, name, None), getattr(torch, "float8_e4m3fn", None)
    if left is None or not hasattr(torch, "_scaled_mm"):
        return []
    scale = torch.ones((), device=device)

    def scaled(result: Any) -> Unit:
        settings = {"scale_a": scale, "scale_b": scale, "out_dtype": result, "use_fast_accum": False}
        return Unit(left, right, lambda a, b: torch._scaled_mm(a, b, **settings))  # noqa: SLF001 - there is no other

    return [scaled(torch.float32), scaled(torch.bfloat16)]


def missing_of_gpu(kind: Kind, device: str) -> str:
    """Why a GPU lacks a type by design; empty if it has it."""
    if not device.startswith("cuda"):
        return "a processor has no such products" if kind.name == "tfloat32" else ""
    has, needs = torch.cuda.get_device_capability(device), NEEDED.get(kind.name, (0, 0))
    return f"compute capability {has[0]}.{has[1]}" if has < needs else ""


def address_of(gpu: int) -> str:
    """The PCI address of a GPU; empty if PyTorch does not report it."""
    about = torch.cuda.get_device_properties(gpu)
    domain, bus, device = (getattr(about, f"pci_{part}_id", -1) for part in ("domain", "bus", "device"))
    return "" if min(domain, bus, device) < 0 else f"{domain:04x}:{bus:02x}:{device:02x}.0"


def choose(unit: Unit) -> None:
    """Configure PyTorch for this unit: no TF32 in place of float32, no reduced-precision sums."""
    torch.set_float32_matmul_precision(unit.precision)
    for name in ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation"):
        with suppress(AttributeError, AssertionError):  # unsupported settings of a PyTorch version raise either
            setattr(torch.backends.cuda.matmul, f"allow_{name}", False)
