"""A Python of the node's that has PyTorch: the probe's own runs without anybody's packages."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

from clusterproof.plugins.agent.reading import Absent, Node, TimedOut
from clusterproof.plugins.benchmarks.load.tool import matching, output_of

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
HAS_TORCH = "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None)"


def torch_python(node: Node) -> str:
    """Where it lies within the node's root. Raises Absent."""
    named = node.settings.get("torch_python", "")
    tried = candidates(node, named)
    for python in tried:
        try:
            if not output_of(node, (python, "-I", "-c", HAS_TORCH), python, TRY_S)["exit"]:
                return python
        except TimedOut:
            continue
    raise Absent(f"none of {len(tried)} Pythons has PyTorch ({', '.join(tried[:4])}…)" if tried else "no Python")


def candidates(node: Node, named: str) -> list[str]:
    """The Pythons that are tried; only the one that the user names, where one is named."""
    if named:
        return [named]
    on_path = [] if node.root else [shutil.which("python3") or ""]
    found = [*on_path, "/usr/bin/python3", "/usr/local/bin/python3"]
    found += [path for pattern in PATTERNS for path in matching(node, pattern)]
    there = [path for path in found if path and os.access(node.path(path), os.X_OK)]
    return list(dict.fromkeys(there))[:MAX_TRIED]


def run_with_torch(node: Node, python: str, module: str, timeout_s: float) -> dict[str, object]:
    """What `main` of one of these modules prints there. Raises TimedOut."""
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined] # both have it
    variables = {SOURCE: f"{source}\nmain()\n"}
    ran = output_of(node, (python, "-I", "-c", RUN), python, timeout_s, variables=variables)
    return {**ran, "command": f"{python}: {module.rpartition('.')[2]}"}
