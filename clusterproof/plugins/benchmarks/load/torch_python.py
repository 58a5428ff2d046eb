"""Finds a Python of the node that has PyTorch: the probe's own runs without site packages."""

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

PACKAGES = "lib*/python3*/*-packages"  # of an environment: Python itself runs files in it
PATTERNS = (  # in this order: what the image's maker put first on the path, then environments of its own
    "/opt/*/bin/python3",
    "/opt/*/envs/*/bin/python3",
    "/opt/*/*/bin/python3",
    "/home/*/*/bin/python3",
    "/home/*/*/envs/*/bin/python3",
)
MAX_TRIED = 24  # that are tried
TRY_S = 10.0  # an environment on a shared file system may take some
SOURCE = "CLUSTERPROOF_SOURCE"  # the variable that it comes in
RUN = f"import os; exec(os.environ.pop('{SOURCE}'))"
EXACT = "clusterproof.plugins.evidence.exact.on_node"
END_S = 10.0  # of a run, for what its processes have answered by then
HAS_TORCH = "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None)"


def torch_python(node: Node) -> str:
    """Where it lies within the node's root. Raises Absent."""
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
    """The Pythons that are tried, and why others are not; only the one that the user names, where one is named.

    None that another user decides about is tried: whoever runs this would run what that user likes.
    """
    if named:
        return [named], []
    found = [*(f"{folder}/python3" for folder in on_path(node)), "/usr/bin/python3", "/usr/local/bin/python3"]
    found += [path for pattern in PATTERNS for path in matching(node, pattern)]
    there = dict.fromkeys(path for path in found if os.access(node.path(path), os.X_OK))
    doubts = {path: _doubt(node, path) for path in there}
    tried = [path for path, doubt in doubts.items() if not doubt]
    return tried[:MAX_TRIED], [doubt for doubt in doubts.values() if doubt]


def _doubt(node: Node, python: str) -> str:
    """Who else decides what a Python runs: by its program, or by the packages of its environment."""
    environment = os.path.dirname(os.path.dirname(python))
    parts = [python, *(matching(node, f"{glob.escape(environment)}/{PACKAGES}"))]
    parts += [path for folder in parts[1:] for path in matching(node, f"{glob.escape(folder)}/*.pth")]
    try:
        return next(filter(None, (distrust(path, node.root) for path in parts)), "")
    except OSError as problem:
        return f"{python}: {problem.strerror}"


def run_with_torch(node: Node, python: str, module: str, timeout_s: float) -> dict[str, object]:
    """What `main` of one of these modules prints there. Raises TimedOut."""
    return _run(node, python, module, f"{_source(module)}\nmain()\n", timeout_s)


def run_exact(node: Node, python: str, module: str, settings: dict[str, object], timeout_s: float) -> dict[str, object]:
    """What `main` of one of the modules that test exactly prints there; they have each other. Raises TimedOut."""
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
