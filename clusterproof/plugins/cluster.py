"""The pytest plugin's options and hooks. The rest is imported where a cluster or a training run is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.argv import restart_joined
from clusterproof.plugins.suite import hookspecs

_OURS = ("--cluster", "--run", "clusterproof.plugins.command_line.own_checks")  # words of a run over a cluster
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
            from clusterproof.plugins.options import mistakes  # most runs of pytest are of other tests

            if not pluginmanager.is_registered(mistakes):  # by the command
                pluginmanager.register(mistakes)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of third parties."""
    pluginmanager.add_hookspecs(hookspecs)


def is_asked(config: pytest.Config) -> bool:
    """Whether the command line names a cluster or a training run."""
    return config.getoption("--cluster") is not None or bool(config.getoption("--run"))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Compare the catalogue where the command line asks for that; else let the run begin, whatever its reports say."""
    region = config.getoption("--refresh-catalog")
    if is_asked(config) and config.getoption("htmlpath", None):
        from clusterproof.plugins.suite.reporters import guard_beginning_of_html

        guard_beginning_of_html(config)
    if region is None or config.option.help:
        return None
    from clusterproof.plugins.suite.refresh_catalog import refresh_catalog

    return refresh_catalog(str(region))


def pytest_configure(config: pytest.Config) -> None:
    """Let in what a run over a cluster needs, where one is named: pytest then calls its own `pytest_configure`."""
    check_checkout(config)
    if config.option.help:
        return
    if is_asked(config):
        from clusterproof.plugins.suite import plugin

        config.pluginmanager.register(plugin, "clusterproof-run")
    elif config.option.markers:  # a list for people
        from clusterproof.plugins.evaluation.routing import mark_lines

        for line in mark_lines():
            config.addinivalue_line("markers", line)


def check_checkout(config: pytest.Config) -> None:
    """Refuse to run in another checkout than the one whose code this is. Raises pytest.UsageError."""
    is_checkout = (PACKAGE.parent / "pyproject.toml").is_file()
    folders = {config.rootpath, config.rootpath.parent, *([config.invocation_params.dir] if is_checkout else ())}
    for folder in sorted(folders):
        package = folder / "clusterproof"
        files = (package / name for name in ("__init__.py", "plugins/cluster.py"))
        is_one = all(map(os.path.isfile, files))  # where the caller may not enter a folder, none is there
        if is_one and package.resolve() != PACKAGE:
            raise pytest.UsageError(
                f"{folder} is another checkout than {PACKAGE.parent}, whose code this Python imports; expected "
                f"{folder}/.venv/bin/pytest, which {folder}/scripts/environment makes"
            )
