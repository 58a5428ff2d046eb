"""Where a p5.48xlarge has its GPUs, EFA devices and NVSwitches: PCI bus numbers."""

from __future__ import annotations

GPU_BUSES = tuple(0x53 + 0x11 * gpu for gpu in range(8))
EFA_BUSES = tuple(bus - 4 + slot for bus in GPU_BUSES for slot in range(4))  # four in front of each GPU
EFA_NAMES = tuple(f"rdmap{bus}s0" for bus in EFA_BUSES)
NVSWITCH_BUSES = (0xDB, 0xDC, 0xDD, 0xDE)
