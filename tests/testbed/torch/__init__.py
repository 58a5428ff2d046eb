"""The part of PyTorch's API that benchmarks use, over simulated GPUs that each keep a clock.

The file of speeds contains `gemm GPU TFLOP/s`, `copy GPU GB/s`, `torch gpus N` and `torch blind`.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType

__version__ = "2.6.0+cu126"
own: dict[tuple[str, str], float] = {}
GPUS = 8
BLIND = False
with open("/usr/lib/testbed/speeds") as rows:
    for row in rows:
        kind, *rest = row.split()
        if kind in ("gemm", "copy"):
            own[kind, rest[0]] = float(rest[1])
        elif kind == "torch":
            GPUS = int(rest[1]) if rest[0] == "gpus" else GPUS
            BLIND = BLIND or rest[0] == "blind"

clock = dict.fromkeys(range(GPUS), 0.0)  # seconds of each GPU's stream
chosen = [0]


def __getattr__(name: str) -> object:
    """Only exact programs ask for more of PyTorch than this has; print their recorded output and exit."""
    for program in ("cores", "collectives", "steps", "gpus"):  # steps load gpus too
        if f"evidence.exact.on_node.{program}" in sys.modules and not name.startswith("__"):
            with open("/usr/lib/testbed/exact.json") as file:
                sys.stdout.write(json.dumps(json.load(file)[program]))
            raise SystemExit(0)
    raise AttributeError(name)


class dtype:  # noqa: N801 - PyTorch's own name
    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size

    def __str__(self) -> str:
        return f"torch.{self.name}"


bfloat16, float16, uint8 = dtype("bfloat16", 2), dtype("float16", 2), dtype("uint8", 1)


class Tensor:
    def __init__(self, shape: tuple[int, ...], dtype: dtype, device: str = "cpu") -> None:
        self.shape, self.dtype = shape, dtype
        self.gpu = int(device.partition(":")[2]) if device.startswith("cuda") else None

    def copy_(self, other: Tensor, non_blocking: bool = False) -> Tensor:
        ends = [gpu for gpu in (self.gpu, other.gpu) if gpu is not None]
        usual = 390.0 if len(ends) == 2 else 54.9
        speed = min(own.get(("copy", str(gpu)), usual) for gpu in ends)
        clock[chosen[0]] += self.shape[0] * self.dtype.size / 1e9 / speed
        return self


def randn(*shape: int, device: str, dtype: dtype) -> Tensor:
    return Tensor(shape, dtype, device)


def empty(*shape: int, dtype: dtype, device: str = "cpu", pin_memory: bool = False) -> Tensor:
    return Tensor(shape, dtype, device)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    assert a.gpu == b.gpu == chosen[0]
    speed = own.get(("gemm", str(a.gpu)), 688.0 + (a.gpu or 0) % 3)
    clock[chosen[0]] += 2 * a.shape[0] * a.shape[1] * b.shape[1] / 1e12 / speed
    return a


def manual_seed(seed: int) -> None:
    pass


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = clock[chosen[0]]

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1000


class Device:
    def __init__(self, gpu: int) -> None:
        self.gpu, self.before = gpu, chosen[0]

    def __enter__(self) -> None:
        chosen[0] = self.gpu

    def __exit__(self, *_: object) -> None:
        chosen[0] = self.before


class Properties:
    pci_domain_id, pci_bus_id, pci_device_id = 0, 0x53, 0


cuda = ModuleType("torch.cuda")
cuda.Event, cuda.device = Event, Device  # type: ignore[attr-defined]
cuda.is_available = lambda: not BLIND  # type: ignore[attr-defined]
cuda.is_bf16_supported = lambda: True  # type: ignore[attr-defined]
cuda.device_count = lambda: GPUS  # type: ignore[attr-defined]
cuda.get_device_name = lambda gpu: "NVIDIA H100 80GB HBM3"  # type: ignore[attr-defined]
cuda.get_device_properties = lambda gpu: Properties  # type: ignore[attr-defined]
cuda.synchronize = lambda gpu: None  # type: ignore[attr-defined]
sys.modules["torch.cuda"] = cuda
functional = ModuleType("torch.nn.functional")
functional.gelu = functional.layer_norm = functional.softmax = None  # type: ignore[attr-defined]
for module in (ModuleType("torch.nn"), functional, ModuleType("torch.distributed")):
    sys.modules[module.__name__] = module
