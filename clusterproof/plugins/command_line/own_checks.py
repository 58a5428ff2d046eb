"""The checks that `clusterproof check X FILE…` runs: the packaged ones or a site's own, and what these may load.

Nothing else in the working folder is run: it may be anybody's, as /tmp is, or a recording.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

import pytest

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.opened import distrust, is_folder, path_exists

PACKAGE = Path(__file__).resolve().parents[2]


def limit_conftests(config: pytest.Config) -> str:
    """Limit the conftest.py files that pytest loads to those of the named tests, and let these import their neighbours.

    A conftest.py counts if it is next to named files, below a named folder, or in a folder that contains them all.
    Returns what is not loaded because others may have put it there.
    """
    option = config.known_args_namespace
    folders = _folders(option.file_or_dir, config.invocation_params.dir, has_modules=option.pyargs)
    doubt = next(filter(None, map(_distrust_reason, _looked_into(folders))), "")
    if doubt:
        option.noconftest = True
        return f"{doubt}: no conftest.py and no module there is loaded"
    if not folders:  # else pytest would look for one in its start folder
        option.file_or_dir, option.confcutdir = [str(PACKAGE / "checks")], str(PACKAGE)
    elif not any(str(word).startswith("--confcutdir") for word in config.invocation_params.args):
        option.confcutdir = os.path.commonpath(folders)
    sys.path[:0] = map(str, folders)
    return ""


def _distrust_reason(folder: Path) -> str:
    """Why the contents of a folder are not loaded, in words; empty if it is the caller's own."""
    try:
        doubt = distrust(folder)
    except OSError as problem:
        doubt = str(problem.strerror)
    return f"{folder} {doubt}" if doubt else ""


def _folders(arguments: Sequence[str], folder: Path, *, has_modules: bool) -> list[Path]:
    """The test folders in these pytest arguments; a module has none."""
    paths = [
        (folder / argument).resolve()
        for argument in (argument.partition("::")[0] for argument in arguments)
        if not (has_modules and all(part.isidentifier() for part in argument.split(".")))
    ]
    there = [path for path in paths if path_exists(path) and PACKAGE not in (path, *path.parents)]
    return list(dict.fromkeys(path if is_folder(path) else path.parent for path in there))


def _looked_into(folders: Sequence[Path]) -> Iterable[Path]:
    """Where pytest looks for a conftest.py: the named folders, and their parents up to the common one."""
    common = Path(os.path.commonpath(folders)) if folders else Path("/")
    return dict.fromkeys(
        parent for folder in folders for parent in (folder, *folder.parents) if parent.is_relative_to(common)
    )


CHECKS = Path(__file__).resolve().parents[2] / "checks"
NOT_LOADED = pytest.StashKey[str]()  # why, in words
WORKER = "popen"  # as `-n` has it
ISOLATED = f"popen//python={quote(sys.executable)} -I"  # else Python would look for its modules in this folder first


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load a conftest.py only for named tests."""
    early_config.stash[NOT_LOADED] = limit_conftests(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose what to collect, and how workers are started."""
    if config.args_source is config.ArgsSource.INVOCATION_DIR:
        config.args = [str(CHECKS)]
    if config.stash[NOT_LOADED] and not hasattr(config, "workerinput"):
        sys.stderr.write(f"clusterproof: {printable(config.stash[NOT_LOADED])}\n")
    if getattr(config.option, "tx", None):
        config.option.tx = [ISOLATED if worker == WORKER else worker for worker in config.option.tx]
