"""The error for an X that names no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.inventory import resolve


def refusal(text: str) -> str:
    with pytest.raises(InventoryError) as raised:
        resolve(text)
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def written(folder: Path, text: str) -> str:
    path = folder / "inventory.toml"
    path.write_text(text)
    return str(path)
