"""The options and hooks that every pytest run loads; the rest loads only for a cluster or a training run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.argv import restart_joined
from clusterproof.plugins.suite import hookspecs

_OURS = ("--cluster", "--run", "clusterproof.plugins.command_line.own_checks")  # positional arguments of a cluster run
PACKAGE = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the suite's options."""
    config = pluginmanager.get_plugin("pytestconfig")
    for title, options in {**table.GROUPS, **perf_table.GROUPS}.items():
        group = parser.getgroup(title)
        for option in options:
            group.addoption(option.flag, help=option.words, **option.more)
    if isinstance(config, pytest.Config):
        restart_joined(config.invocation_params.args)
        if any(str(word).partition("=")[0] in _OURS for word in config.invocation_params.args):
            from clusterproof.plugins.options import mistakes  # most pytest runs are not ours

            if not pluginmanager.is_registered(mistakes):  # the clusterproof command has already registered it
                pluginmanager.register(mistakes)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that third parties may implement."""
    pluginmanager.add_hookspecs(hookspecs)


def is_requested(config: pytest.Config) -> bool:
    """Whether the command line names a cluster or a training run."""
    return config.getoption("--cluster") is not None or bool(config.getoption("--run"))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Compare the catalogue if the command line asks for it; otherwise let the run start."""
    region = config.getoption("--refresh-catalog")
    if is_requested(config) and config.getoption("htmlpath", None):
        from clusterproof.plugins.suite.reporters import guard_beginning_of_html

        guard_beginning_of_html(config)
    if region is None or config.option.help:
        return None
    from clusterproof.plugins.suite.refresh_catalog import refresh_catalog

    return refresh_catalog(str(region))


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins of a cluster run if one is requested; pytest then calls their `pytest_configure`."""
    check_checkout(config)
    if config.option.help:
        return
    if is_requested(config):
        from clusterproof.plugins.suite import plugin

        config.pluginmanager.register(plugin, "clusterproof-run")
    elif config.option.markers:  # listed by `pytest --markers`
        from clusterproof.plugins.evaluation.routing import mark_lines

        for line in mark_lines():
            config.addinivalue_line("markers", line)


def check_checkout(config: pytest.Config) -> None:
    """Refuse to run in a checkout other than the one this code comes from. Raises pytest.UsageError."""
    is_checkout = (PACKAGE.parent / "pyproject.toml").is_file()
    folders = {config.rootpath, config.rootpath.parent, *([config.invocation_params.dir] if is_checkout else ())}
    for folder in sorted(folders):
        package = folder / "clusterproof"
        files = (package / name for name in ("__init__.py", "plugins/cluster.py"))
        is_one = all(map(os.path.isfile, files))  # a folder that the caller may not enter counts as having none
        if is_one and package.resolve() != PACKAGE:
            raise pytest.UsageError(
                f"{folder} is another checkout than {PACKAGE.parent}, whose code this Python imports; expected "
                f"{folder}/.venv/bin/pytest, which {folder}/scripts/environment makes"
            )
