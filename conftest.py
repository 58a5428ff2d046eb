"""Lets a bare checkout import its folders as the package `clusterproof`; an installed one brings its plugin itself."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

if importlib.util.find_spec("clusterproof") is None:
    checkout = Path(__file__).parent
    loader = SourceFileLoader("clusterproof", str(checkout / "api" / "__init__.py"))
    spec = importlib.util.spec_from_loader("clusterproof", loader, is_package=True)
    assert spec
    spec.submodule_search_locations = [str(checkout), str(checkout / "api")]
    sys.modules["clusterproof"] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules["clusterproof"])
    pytest_plugins = ["clusterproof.plugins.cluster"]
