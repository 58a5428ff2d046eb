"""What stays to a run's end is kept from the garbage collector meanwhile: to scan it again and again is of no use."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FROZEN_BY_PYTHON = 10_000  # more than Python 3.12 itself has frozen when it starts (375), and less than any program has
_MAY_FREEZE: pytest.StashKey[bool] = pytest.StashKey()


def freeze(config: pytest.Config) -> None:
    """Freeze the objects that there are now, until the run ends.

    Not where another has frozen objects of its own: to unfreeze ours would unfreeze those.
    """
    if _MAY_FREEZE not in config.stash:
        config.stash[_MAY_FREEZE] = gc.get_freeze_count() < FROZEN_BY_PYTHON
        if config.stash[_MAY_FREEZE]:
            config.add_cleanup(gc.unfreeze)
            atexit.unregister(gc.freeze)
            atexit.register(gc.freeze)  # else Python's last scans, as it ends, would take seconds
    if config.stash[_MAY_FREEZE]:
        gc.freeze()


@contextmanager
def frozen_afterwards(config: pytest.Config) -> Iterator[None]:
    """Look for no cycles meanwhile, nor later in what was made: it has none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        freeze(config)
        if was_enabled:
            gc.enable()
