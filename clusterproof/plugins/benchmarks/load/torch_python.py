"""Finds a Python on the node that has PyTorch: the probe's own runs without site packages."""

from __future__ import annotations

import glob
import os
import time
from importlib.util import find_spec

from clusterproof.plugins.agent import loader
from clusterproof.plugins.agent.reading import Absent, Node, TimedOut
from clusterproof.plugins.agent.tools import on_path
from clusterproof.plugins.agent.trust import distrust
from clusterproof.plugins.benchmarks.load.tool import matching, output_of

PACKAGES = "lib*/python3*/*-packages"  # of an environment: Python runs files in it at start
PATTERNS = (  # in this order: first what the image's maker put on PATH, then separate environments
    "/opt/*/bin/python3",
    "/opt/*/envs/*/bin/python3",
    "/opt/*/*/bin/python3",
    "/home/*/*/bin/python3",
    "/home/*/*/envs/*/bin/python3",
)
MAX_TRIED = 24  # maximum number tried
TRY_S = 10.0  # an environment on a shared file system is slow
SOURCE = "CLUSTERPROOF_SOURCE"  # the variable that passes the source
RUN = f"import os; exec(os.environ.pop('{SOURCE}'))"
EXACT = "clusterproof.plugins.evidence.exact.on_node"
END_S = 10.0  # reserved in a run, to end it and report what its processes have answered
HAS_TORCH = "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None)"


def torch_python(node: Node) -> str:
    """Its path within the node's root. Raises Absent."""
    named = node.settings.get("torch_python", "")
    tried, doubts = candidates(node, named)
    for python in tried:
        try:
            if not output_of(node, (python, "-I", "-c", HAS_TORCH), python, TRY_S)["exit"]:
                return python
        except TimedOut:
            continue
    searched = f"none of {len(tried)} Pythons has PyTorch ({', '.join(tried[:4])}…)" if tried else "no Python"
    raise Absent(searched + (f"; {len(doubts)} of others were not run ({doubts[0]})" if doubts else ""))


def candidates(node: Node, named: str) -> tuple[list[str], list[str]]:
    """The Pythons to try, and why others are skipped; only the user's choice, if there is one.

    One that another user can change is skipped: it would run that user's code as ours.
    """
    if named:
        return [named], []
    paths = [*(f"{folder}/python3" for folder in on_path(node)), "/usr/bin/python3", "/usr/local/bin/python3"]
    paths += [path for pattern in PATTERNS for path in matching(node, pattern)]
    there = dict.fromkeys(path for path in paths if os.access(node.path(path), os.X_OK))
    doubts = {path: _doubt(node, path) for path in there}
    tried = [path for path, doubt in doubts.items() if not doubt]
    return tried[:MAX_TRIED], [doubt for doubt in doubts.values() if doubt]


def _doubt(node: Node, python: str) -> str:
    """Who else can change what a Python runs: its program, or its environment's packages."""
    environment = os.path.dirname(os.path.dirname(python))
    parts = [python, *(matching(node, f"{glob.escape(environment)}/{PACKAGES}"))]
    parts += [path for folder in parts[1:] for path in matching(node, f"{glob.escape(folder)}/*.pth")]
    try:
        return next(filter(None, (distrust(path, node.root) for path in parts)), "")
    except OSError as problem:
        return f"{python}: {problem.strerror}"


def run_with_torch(node: Node, python: str, module: str, timeout_s: float) -> dict[str, object]:
    """Run `main` of one of these modules there and return its output. Raises TimedOut."""
    return _run(node, python, module, f"{_source(module)}\nmain()\n", timeout_s)


def run_exact(node: Node, python: str, module: str, settings: dict[str, object], timeout_s: float) -> dict[str, object]:
    """The same for the modules for exact tests, which import each other. Raises TimedOut."""
    request = {**settings, "seed": time.time_ns() >> 20, "within_s": timeout_s - END_S}
    spec = find_spec(f"{EXACT}.{module}")
    travelled = vars(spec.loader).get("sources", {}) if spec else {}
    sources = {name: text for name, text in travelled.items() if name.startswith(f"{EXACT}.")}
    source = f"{_source(loader.__name__)}\nstart({sources!r}, {f'{EXACT}.{module}'!r}, {request!r})\n"
    return _run(node, python, module, source, timeout_s)


def _source(module: str) -> str:
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined] # both have it
    return str(source)


def _run(node: Node, python: str, module: str, source: str, timeout_s: float) -> dict[str, object]:
    ran = output_of(node, (python, "-I", "-c", RUN), python, timeout_s, variables={SOURCE: source})
    return {**ran, "command": f"{python}: {module.rpartition('.')[2]}"}
