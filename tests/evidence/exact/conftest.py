"""What tests of exact arithmetic share."""

from __future__ import annotations

import pytest

from bench.real_runs import torch_python


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has PyTorch. Skips where none has."""
    found = torch_python(None)
    if found is None:
        pytest.skip("no PyTorch here: apt-get install python3-torch")
    return found
