"""Runs programs in a Python with PyTorch, which the tests' own Python lacks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def printed_by(python: str, program: str, *arguments: str) -> str:
    """The last line that a module of these tests prints there."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(
        [python, "-m", program, *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return ran.stdout.splitlines()[-1]
