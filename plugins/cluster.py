"""Pytest meets a cluster: options, marks, the header, which checks run, and the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.fixtures import node, pairwise
from clusterproof.plugins import collect, hookspecs, protocol
from clusterproof.plugins.catalog import owners
from clusterproof.plugins.collect import CheckItem
from clusterproof.plugins.inventory import InventoryError, narrow, resolve, with_expectations
from clusterproof.plugins.load import command_line
from clusterproof.plugins.options import add_options, check_options, check_root
from clusterproof.plugins.outcomes import Outcomes
from clusterproof.plugins.pairwise import command_line as of_pairs
from clusterproof.plugins.policy.file import find_policy
from clusterproof.plugins.policy.model import Policy
from clusterproof.plugins.policy.ruling import Ruling
from clusterproof.plugins.refresh_catalog import pytest_cmdline_main  # noqa: F401 - a hook
from clusterproof.plugins.reporting import Reporting
from clusterproof.plugins.routing import OCCASIONS, SUBSYSTEMS
from clusterproof.plugins.session import Session
from clusterproof.plugins.state import CLUSTER, CLUSTER_IS_MISSING, POLICY, ROUTES, is_named


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the suite's options."""
    add_options(parser)
    add_options(parser, command_line.GROUPS)
    add_options(parser, of_pairs.GROUPS)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of third parties."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks and, where a cluster is named, everything that a run of it needs."""
    for line in _marks():
        config.addinivalue_line("markers", line)
    config.stash[ROUTES] = {}
    config.pluginmanager.register(collect, "clusterproof-collect")
    config.pluginmanager.register(protocol, "clusterproof-protocol")
    config.pluginmanager.register(node, "clusterproof-fixtures")
    config.pluginmanager.register(pairwise, "clusterproof-pairwise")
    text = config.getoption("--cluster")
    if text is None or config.option.help:
        return
    check_root(config)
    check_options(config.option)
    command_line.load_options(config.option)
    of_pairs.check_pair_options(config.option)
    try:
        policy = find_policy(config.option.policy, config.invocation_params.dir)
        cluster = resolve_cluster(config, text, policy)
    except InventoryError as wrong:
        raise pytest.UsageError(str(wrong)) from None
    config.stash[POLICY] = policy
    if policy.source:
        config.pluginmanager.register(Ruling(policy), "clusterproof-policy")
    config.stash[CLUSTER] = cluster
    config.pluginmanager.register(Session(config, cluster), "clusterproof-session")
    if not hasattr(config, "workerinput"):
        outcomes = Outcomes(config, config.stash[CLUSTER])
        config.pluginmanager.register(outcomes, "clusterproof-outcomes")
        if not (config.option.no_report or config.option.collectonly):
            config.pluginmanager.register(Reporting(config, outcomes), "clusterproof-reporting")


def resolve_cluster(config: pytest.Config, text: str, policy: Policy) -> Any:
    """The cluster that the command line asks for. Raises InventoryError."""
    option = config.option
    worker = getattr(config, "workerinput", {})
    if "clusterproof_recording" in worker:
        return resolve(f"replay:{worker['clusterproof_recording']}")
    found = config.hook.pytest_cluster_inventory(config=config, text=text) or resolve(text, inventory_settings(option))
    found = narrow(found, option.nodes or "", option.exclude or "")
    return with_expectations(found, option.instance_type or "", option.expect or "", policy.expect)


def inventory_settings(option: Any) -> dict[str, str]:
    """What the command line says of AWS and of Slurm."""
    told = {key: getattr(option, key) for key in ("region", "profile", "via", "srun_options", "slurm_wait")}
    told["include_drained"] = "yes" if option.include_drained else ""
    return {key: str(value) for key, value in told.items() if value}


def _marks() -> list[str]:
    skills = [f"{owner.mark}(section): a finding of this check goes to {owner.name}" for owner in owners().values()]
    subsystems = [f"{name}: checks of this subsystem" for name in SUBSYSTEMS]
    occasions = [f"{name}: {_OCCASION_WORDS[name]}" for name in OCCASIONS]
    return [*subsystems, *occasions, *skills]


_OCCASION_WORDS = {
    "preflight": "before a training run",
    "prolog": "before each job, from Slurm",
    "epilog": "after each job, from Slurm",
    "ami": "the gate for a new machine image",
    "perf": "loads the hardware; runs only when -m names it",
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only runs when `-m` names its occasion, and put the checks of the node itself first."""
    if config.stash.get(CLUSTER_IS_MISSING, False):
        raise pytest.UsageError(collect.NO_CLUSTER)
    if CLUSTER not in config.stash:
        return
    left_out = [item for item in items if is_only_by_name(item, config.option.markexpr)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    items.sort(key=lambda item: not (isinstance(item, CheckItem) and item.check.route.subsystem == "node"))


def is_only_by_name(item: pytest.Item, markexpr: str) -> bool:
    """Whether a test runs only when `-m` names its occasion, and `-m` does not.

    What loads the hardware, and what is of an image alone: on a node that people work on it finds their work.
    """
    has_another = item.get_closest_marker("preflight")
    if item.get_closest_marker("perf") and not has_another:  # one that has reads logs then, and loads nothing
        return not is_named(markexpr, "perf")
    is_of_image_alone = item.get_closest_marker("ami") and not has_another
    return bool(is_of_image_alone) and "ami" not in markexpr
