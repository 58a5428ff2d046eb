"""Lets a bare checkout import its folders as the package `clusterproof`; an installed one brings its plugin itself."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("clusterproof") is None:
    spec = importlib.machinery.ModuleSpec("clusterproof", loader=None, is_package=True)
    spec.submodule_search_locations = [str(Path(__file__).parent)]
    sys.modules["clusterproof"] = importlib.util.module_from_spec(spec)
    pytest_plugins = ["clusterproof.plugins.cluster"]
