"""Registers the plugin so that pytest runs the checks in a bare checkout; an installed one registers itself."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

if not entry_points(group="pytest11", name="clusterproof.plugins.cluster"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    pytest_plugins = ["clusterproof.plugins.cluster"]
