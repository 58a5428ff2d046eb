"""Fixtures of the tests of exact arithmetic."""

from __future__ import annotations

import pytest

from bench.real_runs import torch_python


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with PyTorch. Skips if there is none."""
    path = torch_python(None)
    if path is None:
        pytest.skip("no PyTorch here: apt-get install python3-torch")
    return path
