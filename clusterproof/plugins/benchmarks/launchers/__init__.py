"""How a meter is started on pairs of nodes: launchers, all with the same few functions (`suite.perf.pairs_measure`)."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
PLUGINS = FOLDER.parents[1]
