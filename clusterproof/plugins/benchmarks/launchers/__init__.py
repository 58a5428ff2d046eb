"""How a meter is started on pairs of nodes: one file per launcher, all with the same few functions."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
PLUGINS = FOLDER.parents[1]
