"""This checkout's wheel beside another system's Python, as a site has it in /opt/clusterproof."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = "opt/clusterproof"


def installed_under(folder: Path, wheel: Path, python: str) -> Path:
    """A tree to overlay on a system whose Python has that version (`3.13`): the scripts and the packages."""
    tree = folder / "tree"
    packages = tree / HOME / "lib" / f"python{python}" / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    options = ["--ignore-requires-python", "--target", str(packages)]
    made = subprocess.run([*pip, *options, str(wheel)], capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    (packages / "bin").rename(tree / HOME / "bin")
    (tree / HOME / "bin" / "python").symlink_to("/usr/bin/python3")
    (tree / HOME / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    return tree
