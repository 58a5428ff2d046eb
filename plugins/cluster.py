"""All that a run of pytest loads of the suite before it knows that a cluster or a run is meant: options and hooks."""

from __future__ import annotations

import pytest

from clusterproof.plugins.suite import flags, flags_of_perf, hookspecs
from clusterproof.plugins.suite.two_words import begin_again


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the suite's options."""
    config = pluginmanager.get_plugin("pytestconfig")
    for title, options in {**flags.GROUPS, **flags_of_perf.GROUPS}.items():
        group = parser.getgroup(title)
        for option in options:
            group.addoption(option.flag, help=option.words, **option.more)
    if isinstance(config, pytest.Config):
        begin_again(config.invocation_params.args)


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
        from clusterproof.plugins.suite.writers import guard_beginning_of_html

        guard_beginning_of_html(config)
    if region is None or config.option.help:
        return None
    from clusterproof.plugins.suite.refresh_catalog import refresh_catalog

    return refresh_catalog(str(region))


def pytest_configure(config: pytest.Config) -> None:
    """Let in what a run over a cluster needs, where one is named: pytest then calls its own `pytest_configure`."""
    if config.option.help:
        return
    if is_asked(config):
        from clusterproof.plugins.suite import over_cluster

        config.pluginmanager.register(over_cluster, "clusterproof-run")
    elif config.option.markers:  # a list for people
        from clusterproof.plugins.suite.routing import mark_lines

        for line in mark_lines():
            config.addinivalue_line("markers", line)
