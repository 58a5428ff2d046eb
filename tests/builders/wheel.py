"""Installs this checkout's wheel in a separate environment with no path back to the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment with the suite's wheel and its dependencies."""

    environment: Path

    @property
    def bin(self) -> Path:
        return self.environment / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    @property
    def site(self) -> Path:
        return _site_of(self.environment)

    @property
    def package(self) -> Path:
        return self.site / "clusterproof"

    def run(self, cwd: Path, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a folder that is also its user's home; a first word without `/` is this environment's."""
        first, *arguments = map(str, command)
        first = first if "/" in first else str(self.bin / first)
        variables = {**clean_environment(cwd, self), **more}
        return subprocess.run([first, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=600)

    def pytest(self, cwd: Path, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run pytest as a user of the installed wheel would, with every available plugin."""
        return self.run(cwd, "python", "-m", "pytest", "-p", "no:cacheprovider", *arguments, **more)


def clean_environment(home: Path, installed: Installed) -> dict[str, str]:
    """The environment variables of a user without this checkout."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**kept, "HOME": str(home), "PATH": f"{installed.bin}:{os.environ['PATH']}", "COLUMNS": "200"}


def linked_in(folder: Path) -> None:
    """Link the checkout's package into a folder, without its neighbours."""
    (folder / "clusterproof").symlink_to(ROOT / "clusterproof")


def clone_of(source: Path, folder: Path) -> Path:
    """A copy of the files that git tracks there, without tests. Skips if this is no checkout."""
    listed = ["git", "-C", str(source), "ls-files", "-co", "--exclude-standard", "-z"]
    tracked = subprocess.run(listed, capture_output=True)
    if tracked.returncode:
        pytest.skip("not a git checkout: which files are of it is not known")
    for name in filter(None, tracked.stdout.decode().split("\0")):
        if (source / name).exists() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, folder / name, follow_symlinks=False)
    return folder


def wheel_of(source: Path, folder: Path) -> Path:
    """Build the wheel of a folder into an otherwise empty `folder`."""
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    _pip(*build)
    (wheel,) = folder.iterdir()
    return wheel


def environment_with(
    wheel: Path | str, folder: Path, further: Sequence[Path] = (), *, options: Sequence[str] = ()
) -> Installed:
    """An environment with the wheel (or what pip installs for it), these tests' packages and `further` folders."""
    made = environment(folder, further)
    _pip("--python", str(made.python), "install", "--quiet", "--no-deps", "--ignore-installed", *options, str(wheel))
    return made


def environment(folder: Path, further: Sequence[Path] = ()) -> Installed:
    """An environment with only the suite's dependencies."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    # .pth files in these folders are not read, so the checkout is not found.
    borrowed = [*further, Path(sysconfig.get_path("purelib"))]
    (_site_of(folder) / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed), encoding="utf-8")
    return Installed(folder)


def _site_of(folder: Path) -> Path:
    (site,) = (folder / "lib").glob("python3*/site-packages")
    return site


def _pip(*arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    made = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
