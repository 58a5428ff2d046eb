"""GPU settings, identity, and what slows GPUs down."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.faults.gpu_fabric import gb300
from tests.testbed.image import NodeImage
from tests.testbed.node import with_nvml


def busy(image: NodeImage) -> NodeImage:
    """All GPUs compute, and nothing slows them down."""
    values = {"utilization_percent": 98, "clocks_event_reasons": "0x0", "clock_mhz": 1980}
    return reduce(lambda made, gpu: with_nvml(made, gpu, **values), range(8), image)


FAULTS = (
    Fault(
        "a hardware slowdown by heat",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x48", **{"field 252": "running"}),
        {"gpu.no_throttle": FAIL},
        "GPU 2: slowed down continuously by hardware slowdown, hardware thermal slowdown; expected",
    ),
    Fault(
        "a hardware slowdown by heat, as an old driver counts it",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x40", **{"field 75": "running"}),
        {"gpu.no_throttle": FAIL},
        "slowed down continuously by hardware thermal slowdown",
    ),
    Fault(
        "a power brake, as a new driver counts it",
        lambda image: with_nvml(
            image, gpu=2, clocks_event_reasons="0x80", **{"field 253": 40, "field 270": 0, "field 271": "running"}
        ),
        {"gpu.no_throttle": FAIL},
        "slowed down continuously by hardware power brake",
    ),
    Fault(
        "a power brake that held for a moment",
        lambda image: with_nvml(
            image, gpu=2, clocks_event_reasons="0x80", **{"field 75": "running", "field 253": 41_000_000}
        ),
        {"gpu.no_throttle": CONCERN},
        "GPU 2: slowed down by hardware power brake; expected none",
    ),
    Fault(
        "a hardware slowdown of which the driver counts no time",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x48"),
        {"gpu.no_throttle": CONCERN},
        "GPU 2: slowed down by hardware slowdown, hardware thermal slowdown; expected none",
    ),
    Fault(
        "a software slowdown by heat",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x20"),
        {"gpu.no_throttle": CONCERN},
        "software thermal slowdown",
    ),
    Fault(
        "a busy GPU whose clock is far below the others' for no reason",
        lambda image: with_nvml(busy(image), gpu=2, clock_mhz=1366),
        {"gpu.no_throttle": CONCERN},
        "GPU 2: a clock of 1366 MHz while 98 % busy, and no reason for it; expected about 1980 MHz, like the other",
    ),
    Fault(
        "a GPU above its slowdown temperature",
        lambda image: with_nvml(image, gpu=2, temperature_c=89, temperature_margin_c=-2),
        {"gpu.temperature": FAIL},
        "GPU 2: 2 °C above its slowdown temperature",
    ),
    Fault(
        "a GPU close to its slowdown temperature",
        lambda image: with_nvml(image, gpu=2, temperature_c=84, temperature_margin_c=3),
        {"gpu.temperature": CONCERN},
        "3 °C below",
    ),
    Fault(
        "a hot GPU whose driver reports no margin",
        lambda image: with_nvml(image, gpu=2, temperature_c=91, temperature_margin_c="error NOT_SUPPORTED"),
        {"gpu.temperature": FAIL},
        "91 °C; expected less than 88 °C",
    ),
    Fault(
        "a hot GPU beside cool ones, all of them idle",
        lambda image: with_nvml(image, gpu=2, temperature_c=56, temperature_margin_c=31),
        {"gpu.temperature": CONCERN},
        "GPU 2: 56 °C and idle; expected about 34 °C, like the other idle GPUs",
    ),
    Fault(
        "application clocks that somebody has lowered",
        lambda image: with_nvml(image, gpu=2, app_clock_mhz=1095),
        {"gpu.application_clocks": CONCERN},
        "GPU 2: application clock is 1095 MHz; expected 1980 MHz, the default",
    ),
    Fault(
        "application clocks that somebody has lowered in an image",
        lambda image: with_nvml(image, gpu=2, app_clock_mhz=1095),
        {"gpu.application_clocks": FAIL},
        "application clock is 1095 MHz",
        occasion="ami",
    ),
    Fault(
        "GPUs whose clocks are bound to each other by sync boost",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x10"),
        {"gpu.no_throttle": CONCERN},
        "GPU 2: slowed down by sync boost; expected none",
    ),
    Fault(
        "ECC that goes off at the next reset",
        lambda image: with_nvml(image, gpu=2, ecc_enabled_pending=False),
        {"gpu.ecc_mode": CONCERN},
        "GPU 2: ECC is enabled until the next reset only; expected no change pending",
    ),
    Fault(
        "a lowered power limit",
        lambda image: with_nvml(image, gpu=2, power_limit_w=500),
        {"gpu.power_limit": CONCERN, "gpu.gpu_uniform": CONCERN},
        "power limit is 500 W; expected 700 W",
    ),
    Fault(
        "persistence mode off",
        lambda image: with_nvml(image, gpu=2, persistence_mode=False),
        {"gpu.persistence_mode": CONCERN},
        "persistence mode is off",
    ),
    Fault(
        "persistence mode off in an image",
        lambda image: with_nvml(image, gpu=2, persistence_mode=False),
        {"gpu.persistence_mode": FAIL},
        "persistence mode is off",
        occasion="ami",
    ),
    Fault(
        "an exclusive compute mode",
        lambda image: with_nvml(image, gpu=2, compute_mode=3),
        {"gpu.compute_mode": CONCERN},
        "compute mode is exclusive process",
    ),
    Fault(
        "MIG on one GPU only",
        lambda image: with_nvml(image, gpu=2, mig_mode=True),
        {"gpu.mig_uniform": CONCERN, "gpu.gpu_uniform": CONCERN},
        "MIG is on for GPU 2 of 8",
    ),
    Fault(
        "a change of MIG mode that waits for the next reset",
        lambda image: with_nvml(image, gpu=2, mig_mode_pending=True),
        {"gpu.mig_uniform": CONCERN},
        "MIG turns on at the next reset of GPU 2; expected no change pending",
    ),
    Fault(
        "a GPU whose maximal clock is lower than that of the others",
        lambda image: with_nvml(image, gpu=2, clock_max_mhz=1755),
        {"gpu.gpu_uniform": CONCERN},
        "GPU 2: maximum clock (MHz) 1755; expected 1980 as on 3 of 4 nodes",
    ),
    Fault(
        "a GPU whose default power limit is lower than that of the others",
        lambda image: with_nvml(image, gpu=2, power_limit_default_w=650),
        {"gpu.gpu_uniform": CONCERN},
        "GPU 2: default power limit (W) 650; expected 700 as on 3 of 4 nodes",
    ),
    Fault(
        "a GPU with another VBIOS",
        lambda image: with_nvml(image, gpu=2, vbios="96.00.89.00.01"),
        {"gpu.vbios_uniform": CONCERN, "gpu.gpu_uniform": CONCERN},
        "VBIOS 96.00.89.00.01 on GPU 2; expected 96.00.A5.00.01, as on 3 of 4 nodes",
    ),
    Fault(
        "a clocks event reason that nobody knows",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x801"),
        {"gpu.no_throttle": CONCERN},
        "GPU 2: clocks event reasons 0x800, which the catalogue does not know",
    ),
    Fault(
        "a GPU slowed down by its board",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x200"),
        {"gpu.no_throttle": CONCERN},
        "GPU 2: slowed down by board limit",
    ),
    Fault(
        "a node whose GPUs have another VBIOS than those of the other nodes",
        lambda image: replace(image, nvml=(image.nvml or "").replace("96.00.A5.00.01", "96.00.89.00.01")),
        {"gpu.gpu_uniform": CONCERN},
        "VBIOS 96.00.89.00.01; expected 96.00.A5.00.01 as on 3 of 4 nodes",
    ),
    Fault(
        "a node whose GPUs have less memory than those of the other nodes",
        lambda image: replace(image, nvml=(image.nvml or "").replace("= 81559", "= 65247")),
        {"gpu.gpu_uniform": CONCERN},
        "memory (MiB) 65247; expected 81559 as on 3 of 4 nodes",
    ),
    Fault(
        "a GPU whose name cannot be read",
        lambda image: with_nvml(image, gpu=2, name="error UNKNOWN"),
        {"gpu.gpu_uniform": INCOMPLETE, "host.firmware_uniform": INCOMPLETE},
        "name could not be read (UNKNOWN)",
    ),
    Fault(
        "two GPUs that report the same UUID",
        lambda image: with_nvml(with_nvml(image, gpu=2, uuid="GPU-1"), gpu=3, uuid="GPU-1"),
        {"gpu.gpu_identity": CONCERN},
        "uuid GPU-1 of 2 GPUs; expected a different one for each GPU",
    ),
    Fault(
        "two GPUs that report the same serial",
        lambda image: with_nvml(with_nvml(image, gpu=2, serial=165), gpu=3, serial=165),
        {"gpu.gpu_identity": CONCERN},
        "serial 165 of 2 GPUs",
    ),
    Fault(
        "GPUs of two boards that report one serial",
        lambda image: with_nvml(with_nvml(image, gpu=2, serial=1650000000001), gpu=3, serial=1650000000001),
        {"gpu.gpu_identity": CONCERN},
        "serial 1650000000001 of 4 GPUs",
        base=gb300,
    ),
    Fault(
        "a GPU whose serial cannot be read",
        lambda image: with_nvml(image, gpu=2, serial="error UNKNOWN"),
        {"gpu.gpu_identity": INCOMPLETE},
        "serial could not be read (UNKNOWN)",
    ),
)
