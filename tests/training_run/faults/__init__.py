"""Faults of training runs with the checks' results, and a healthy run for each check.

The `FAULTS` and the `HEALTHY` runs by check of every file here are found automatically.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.faults.fault import RunFault

_FILES = [import_module(f"{__name__}.{name}") for name in sorted(module.name for module in iter_modules(__path__))]
FAULTS: tuple[RunFault, ...] = tuple(fault for file in _FILES for fault in getattr(file, "FAULTS", ()))
HEALTHY: Mapping[str, Callable[[], TrainingRun]] = {
    check: run for file in _FILES for check, run in getattr(file, "HEALTHY", {}).items()
}
