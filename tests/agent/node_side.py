"""The source files of the program for nodes."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.agent.payload import FOLDER
from clusterproof.plugins.agent.program import files

CONTROL_SIDE = {"__init__", "frame", "nvidia_ml", "parts", "payload", "program"}
OF_AGENT = (file for file in FOLDER.glob("*.py") if file.stem not in CONTROL_SIDE)
NODE_SIDE = sorted([*OF_AGENT, *map(Path, files().values())])
