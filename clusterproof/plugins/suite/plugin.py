"""A run over a cluster: marks, fixtures, plugins, and the selection of checks, including a site's policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof import fixtures
from clusterproof.plugins.catalog import thresholds
from clusterproof.plugins.core.cluster import Cluster, InventoryError, is_of_hyperpod, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.opened import keep_private
from clusterproof.plugins.core.policy import Policy, disabled_reason
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evaluation.routing import mark_lines
from clusterproof.plugins.inventory import narrow, resolve, with_expectations
from clusterproof.plugins.options.perf_validate import check_pair_options
from clusterproof.plugins.options.validate import check_options, check_recording, check_root
from clusterproof.plugins.policy import find_policy, refuse_empty, refuse_unknown
from clusterproof.plugins.suite import collect, report, run_loop
from clusterproof.plugins.suite.collect import load_chosen, with_every_node
from clusterproof.plugins.suite.ending import Signals
from clusterproof.plugins.suite.items import CheckItem, asks_for_node, node_name, route_of
from clusterproof.plugins.suite.outcomes import Outcomes
from clusterproof.plugins.suite.perf.load_options import check_load_options
from clusterproof.plugins.suite.perf.pairs_options import check_pair_files
from clusterproof.plugins.suite.reporting import Reporting
from clusterproof.plugins.suite.selection import needs_pairs
from clusterproof.plugins.suite.session import ClusterSession
from clusterproof.plugins.suite.state import CLUSTER, POLICY, ROUTES, TRAINING_RUN, is_named, requires
from clusterproof.plugins.transport import begins_container

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks and plugins that a run over the cluster needs. Raises pytest.UsageError."""
    if not config.option.redact:
        config.add_cleanup(keep_private())
    for line in mark_lines():
        config.addinivalue_line("markers", line)
    config.stash[ROUTES] = {}
    config.pluginmanager.register(collect, "clusterproof-collect")
    config.pluginmanager.register(run_loop, "clusterproof-run-loop")
    config.pluginmanager.register(report, "clusterproof-report")
    config.pluginmanager.register(fixtures, "clusterproof-fixtures")
    config.option.usepdb = bool(config.getoption("usepdb", False))  # `-p no:debugging` leaves it out
    check_root(config)
    check_options(config.option)
    if not hasattr(config, "workerinput"):
        check_recording(config.option)
    check_load_options(config.option)
    check_pair_options(config.option)
    check_pair_files(config.option)
    try:
        policy = policy_of_run(config)
        if asks_for_training_run(config):
            from clusterproof.plugins.suite import training_run

            training_run.begin(config, policy)
        text = config.getoption("--cluster")
        cluster = training_run.without_nodes(config) if text is None else resolve_cluster(config, text, policy)
    except InventoryError as wrong:
        raise pytest.UsageError(str(wrong)) from None
    config.stash[POLICY] = replace(policy, names_skills=is_of_hyperpod(cluster))
    config.stash[CLUSTER] = cluster
    if TRAINING_RUN in config.stash:
        training_run.with_nodes(config, cluster)
    config.pluginmanager.register(ClusterSession(config, cluster), "clusterproof-session")
    if policy.source:
        config.pluginmanager.register(SitePolicy(config.stash[POLICY]), "clusterproof-policy")
    if not hasattr(config, "workerinput"):
        _register_controller(config)


def _register_controller(config: pytest.Config) -> None:
    """Register what only the process that reports has, and no xdist worker."""
    config.pluginmanager.register(Signals(config), "clusterproof-stopping")
    outcomes = Outcomes(config, config.stash[CLUSTER])
    config.pluginmanager.register(outcomes, "clusterproof-outcomes")
    if not (config.option.no_report or config.option.collectonly):
        config.pluginmanager.register(Reporting(config, outcomes), "clusterproof-reporting")


def policy_of_run(config: pytest.Config) -> Policy:
    """The policy named or found in the folder; warns if that is not used. Raises InventoryError."""
    named, folder = config.option.policy, config.invocation_params.dir
    policy = find_policy(named, folder, config.option.cluster or "")
    if named:
        refuse_empty(named, folder)
    if policy.ignored and not hasattr(config, "workerinput"):
        sys.stderr.write(f"clusterproof: {printable(policy.ignored)}\n")
    return policy


def asks_for_training_run(config: pytest.Config) -> bool:
    """Whether a training run is named, or the replayed recording may hold one and `-m` asks for it."""
    is_replay = (config.getoption("--cluster") or "").startswith("replay:")
    return bool(config.getoption("--run")) or (is_replay and is_named(config.option.markexpr, "run"))


def resolve_cluster(config: pytest.Config, text: str, policy: Policy) -> Any:
    """The cluster that the command line asks for. Raises InventoryError."""
    option = config.option
    worker = getattr(config, "workerinput", {})
    if "clusterproof_recording" in worker:
        return resolve(f"replay:{worker['clusterproof_recording']}")
    cluster = config.hook.pytest_cluster_inventory(config=config, text=text) or _packaged(text, option)
    cluster = narrow(cluster, option.nodes or "", option.exclude or "")
    return with_expectations(cluster, option.instance_type or "", option.expect or "", policy.expect)


def _packaged(text: str, option: Options) -> Cluster:
    """The cluster from one of our own inventories. Raises InventoryError."""
    cluster = resolve(text, inventory_settings(option))
    if option.via and not (is_of_slurm(cluster) or is_of_hyperpod(cluster) or is_of_kubernetes(cluster)):
        raise InventoryError(
            f"--via {option.via:.80} is for clusters of Slurm, HyperPod and Kubernetes, and {text:.80} is none; "
            "expected slurm:…, k8s:… or the name of a HyperPod cluster"
        )
    _refuse_container(cluster, text, option)
    return cluster


def _refuse_container(cluster: Cluster, text: str, option: Options) -> None:
    """Raise InventoryError for a container option without effect, or whose answers would be attributed to the node."""
    by_srun, is_by_srun = begins_container(option.srun_options or ""), cluster.connection == "srun"
    is_of_job = requires(option.markexpr, "job")
    if by_srun and is_of_job and not is_by_srun:
        raise InventoryError(
            f"--srun-options {option.srun_options!r:.80} begins a container by srun, and the nodes of {text:.80} are "
            "not asked by it; expected --via controller, or --in-container"
        )
    if by_srun and is_by_srun and not is_of_job and not is_named(option.markexpr, "perf"):
        raise InventoryError(
            f"--srun-options {option.srun_options!r:.80} begins a container; expected -m job with it, or -m perf, as "
            "all other checks are of nodes"
        )
    if option.in_container and not (option.in_container.strip() and option.in_container.isprintable()):
        raise InventoryError(
            f"--in-container {option.in_container!r:.80} would run on the node itself; expected a command in one line"
        )
    if option.in_container and not is_of_job:
        raise InventoryError("--in-container without -m job: expected both, as all other checks are of nodes")
    if option.in_container and cluster.connection not in ("local", "ssh"):
        raise InventoryError(
            f"--in-container is for local and ssh, and {text:.80} is neither; expected for Slurm with pyxis "
            "--srun-options=--container-image=IMAGE, else `clusterproof check local -m job` in the job itself"
        )


def inventory_settings(option: Options) -> dict[str, str]:
    """What the command line says of AWS, Slurm and Kubernetes."""
    names = ("region", "profile", "via", "srun_options", "slurm_wait", "k8s_keep")
    settings = {key: getattr(option, key) for key in names}
    settings["include_drained"] = "yes" if option.include_drained else ""
    return {key: str(value) for key, value in settings.items() if value}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what only runs when `-m` names its occasion, and put the checks of the node itself first."""
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if is_only_by_name(item, config.option.markexpr) else chosen).append(item)
    load_chosen(chosen)
    chosen.sort(key=lambda item: not (isinstance(item, CheckItem) and item.check.route.subsystem == "node"))
    collected = len(items)
    items[:], left_out = with_every_node(chosen), with_every_node(left_out)
    _count_further(config, len(items) + len(left_out) - collected)
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def _count_further(config: pytest.Config, items: int) -> None:
    """Tell pytest's terminal how many items there are, because it has seen fewer."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter:
        reporter._numcollected += items  # noqa: SLF001 - pytest has no public name for it


def is_only_by_name(item: pytest.Item, markexpr: str) -> bool:
    """Whether a test runs only when `-m` names its occasion, and `-m` does not.

    These are checks that load the hardware, checks of images (on a node in use they would report users' work), and
    checks of nodes with a running job.
    """
    if not is_of_cluster(item):
        return False  # a third-party test, whose marks have their plain meaning
    has_another = item.get_closest_marker("preflight")
    if item.get_closest_marker("perf") and not has_another:  # then another mark's test reads logs only
        return not is_named(markexpr, "perf")
    only = [name for name in ("ami", "job") if item.get_closest_marker(name)] if not has_another else []
    return bool(only) and not any(is_named(markexpr, name) for name in only)


def is_of_cluster(item: pytest.Item) -> bool:
    """Whether a test is about the cluster: a check, or a test that uses the suite's fixtures."""
    return isinstance(item, CheckItem) or asks_for_node(item) or needs_pairs(item)


class SitePolicy:
    """The plugin of a run that has a policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def pytest_report_header(self, config: pytest.Config) -> list[str]:
        """One line per change made by the policy; and a warning if an image is compared with nothing."""
        source = self.policy.source
        is_bare = is_named(config.option.markexpr, "ami") and not self.policy.has_manifest
        bare = [f"policy: {source} has no golden manifest: the image is compared with none (clusterproof manifest)"]
        return [f"policy: {source}", *bare * is_bare, *(f"policy: {line}" for line in changes(self.policy))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reject rules without effect; skip disabled tests that pytest itself runs. Raises pytest.UsageError."""
        named = {*self.policy.disabled, *self.policy.readings}
        if not named:
            return
        routes = {item: route_of(item) for item in items}
        ids = {item: about.check for item, about in routes.items() if about}
        if not named <= set(ids.values()):
            try:
                refuse_unknown(self.policy, frozenset(ids.values()) | _packaged_ids())
            except InventoryError as wrong:
                raise pytest.UsageError(str(wrong)) from None
        for item, check in ids.items():
            rule = self.policy.disables(check, node_name(item))
            if rule and not isinstance(item, CheckItem):
                item.add_marker(pytest.mark.skip(reason=disabled_reason(rule, self.policy.source)))


def changes(policy: Policy) -> Iterator[str]:
    """What a policy changes, in words."""
    for name, value in policy.thresholds.items():
        row = thresholds().get(name)
        yield f"{name} is {value:g} {row.unit}, not {row.value:g}" if row else f"{name} is {value:g}"
    if policy.instance_types:
        yield f"instance types of its own: {', '.join(policy.instance_types)}"
    if policy.expect:
        yield f"expects {', '.join(f'{name}={count}' for name, count in policy.expect.items())} of every node"
    for check, rule in policy.disabled.items():
        if rule.is_active(policy.today):
            where = f" on {fold(rule.nodes)}" if rule.nodes else ""
            yield f"{check} is disabled{where} until {rule.until}: {rule.reason}"
        else:
            yield f"{check} runs: its exception ended on {rule.until} ({rule.reason})"
    for key, readings in policy.readings.items():
        for verdict, read_as in readings.items():
            yield f"{verdict.value} of {key} is read as {read_as.value}"
    yield from _further_expectations(policy)


def _further_expectations(policy: Policy) -> Iterator[str]:
    for rules, noun, plural in (
        (policy.versions, "version", ""),
        (policy.modules, "module", ""),
        (policy.libraries, "library", "libraries"),
        (policy.services, "service", ""),
        (policy.sizes, "size", ""),
    ):
        if rules:
            yield f"expects {number_of(len(rules), noun, plural)} in an image"
    if policy.mounts:
        yield f"expects mounted {', '.join(policy.mounts)}"
    if policy.checkpoints:
        yield f"checkpoints go to {', '.join(policy.checkpoints)}"


def _packaged_ids() -> frozenset[str]:
    """The ids of all packaged checks, including those that this run deselects."""
    from clusterproof.plugins.evaluation.all_checks import (
        all_checks,  # imports every check: only needed if a rule is unknown otherwise
    )

    return frozenset(all_checks())
