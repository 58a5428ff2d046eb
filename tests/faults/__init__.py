"""The faults, one file per part of the node. The `FAULTS` of every file here are found automatically.

`DOES_NOT_APPLY` are a file's checks that do not apply to the healthy node, because it has no such part.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.faults import captured, fault
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault

_NO_PARTS = ("__main__", "captured", "captured_fault", "captured_tools", "fault", "proof", "test_faults")
_NAMES = sorted({module.name for module in iter_modules(__path__)}.difference(_NO_PARTS))
_PARTS = [import_module(f"{__name__}.{name}") for name in _NAMES]
FAULTS: tuple[Fault, ...] = tuple(each for part in _PARTS for each in part.FAULTS)
ALL_FAULTS: tuple[Fault | CapturedFault, ...] = (
    *FAULTS,
    *captured.FAULTS,
)  # those of live nodes, and those in captures collected by hand
BY_NAME = {each.name: each for each in FAULTS}
DOES_NOT_APPLY = fault.DOES_NOT_APPLY.union(*(getattr(part, "DOES_NOT_APPLY", ()) for part in _PARTS))
