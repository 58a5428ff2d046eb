"""Fixtures of the tests of exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.real_runs import torch_python
from tests.evidence.exact.in_torch import TorchPython, forking


@pytest.fixture(scope="session")
def python() -> Iterator[TorchPython]:
    """A Python with PyTorch. Skips if there is none."""
    path = torch_python(None)
    if path is None:
        pytest.skip("no PyTorch here: apt-get install python3-torch")
    with forking(path) as started:
        yield started
