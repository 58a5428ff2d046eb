"""What the console command adds to pytest and its workers: the packaged checks run, and nothing of others'."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

import pytest

from clusterproof.plugins.suite.own_tests import let_in

CHECKS = Path(__file__).resolve().parents[2] / "checks"
NOT_LOADED = pytest.StashKey[str]()  # why, in words
WORKER = "popen"  # as `-n` has it
ISOLATED = f"popen//python={quote(sys.executable)} -I"  # else Python would look for its modules in this folder first


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load no conftest.py but of tests that are named."""
    early_config.stash[NOT_LOADED] = let_in(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose what to collect, and how workers are started."""
    if config.args_source is config.ArgsSource.INVOCATION_DIR:
        config.args = [str(CHECKS)]
    if config.stash[NOT_LOADED] and not hasattr(config, "workerinput"):
        sys.stderr.write(f"clusterproof: {config.stash[NOT_LOADED]}\n")
    if getattr(config.option, "tx", None):
        config.option.tx = [ISOLATED if one == WORKER else one for one in config.option.tx]
