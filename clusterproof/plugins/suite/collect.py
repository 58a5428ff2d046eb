"""Collects tests × nodes as items: light ones if a test takes only a node or its devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.core.marks import marks_of_pytest
from clusterproof.plugins.core.result import ALL_PAIRS
from clusterproof.plugins.evaluation.check import WHOLE_SUBJECTS, Check, check_of, is_light
from clusterproof.plugins.evaluation.index import PACKAGE, Stale, load, marks_of, read_check, read_index
from clusterproof.plugins.evaluation.needs import unloaded
from clusterproof.plugins.suite.items import CheckItem, asks_for_node, is_ours
from clusterproof.plugins.suite.selection import are_interchangeable, are_others_in, is_selected
from clusterproof.plugins.suite.state import CLUSTER, PAIRWISE, TRAINING_RUN

if TYPE_CHECKING:
    from clusterproof.plugins.evaluation.index import Entry

EVERY_NODE = ""  # stands for the names of all nodes until collection is complete
# Hooks with which other plugins may inspect a test function during collection.
_HOOKS = (
    "pytest_pycollect_makemodule",
    "pytest_pycollect_makeitem",
    "pytest_itemcollected",
    "pytest_collection_modifyitems",
)
INDEXED: pytest.StashKey[Mapping[str, Mapping[str, Entry]]] = pytest.StashKey()
# Marks that only pytest's own protocol honours: tests with one of them run by that protocol.
_ONLY_PYTEST_HONOURS = frozenset({"parametrize", "skip", "skipif", "xfail", "usefixtures"})


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Collect a function whose only argument is a node or its device as one light item per node."""
    if not (isinstance(collector, pytest.Module) and _is_check(collector, name, obj)):
        return None
    check = check_of(obj, [*marks_of_pytest(obj), *collector.iter_markers()])  # type: ignore[arg-type]
    return items_for(CheckItem.from_parent(collector, check=check, function_name=name, node_name=EVERY_NODE))


def items_for(item: CheckItem) -> list[CheckItem]:
    """The items of a check for all its subjects; one item stands for all nodes until they differ."""
    config, check = item.config, item.check
    cluster = config.stash[CLUSTER]
    if check.is_of_run:
        run = config.stash.get(TRAINING_RUN, None)
        return [item.on(run.name)] if run else []
    if not cluster.targets:
        return []  # a training run is evaluated by itself
    if check.is_of_pair:
        return pair_items(item)
    if check.is_of_cluster and (not check.is_of_member or item.why_not_queried):
        return [item.on(cluster.name)]
    if not is_selected(config, item.iter_markers()):
        return [item.on(target.name) for target in cluster.targets[:1]]
    return [item] if are_interchangeable(config) else node_items(item)


class IndexedFile(pytest.Module):
    """A file of packaged checks from the index: it is imported once one of them is selected."""

    entries: Mapping[str, Entry]  # by check id, in the order of the file
    loaded: dict[str, Check]

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its checks as light items, or by pytest's own protocol if a third-party fixture is involved."""
        names = {name for entry in self.entries.values() for name in (entry["subject"], *WHOLE_SUBJECTS)}
        if _is_any_of_others(self, names):
            return super().collect()
        return [item for entry in self.entries.values() for item in items_for(self._item(entry))]

    def _item(self, entry: Entry) -> CheckItem:
        return CheckItem.from_parent(
            self,
            check=read_check(entry, str(self.path)),
            function_name=entry["function"],
            node_name=EVERY_NODE,
            marks=[mark.mark for mark in marks_of(entry)],
        )

    def load(self, check: Check) -> Check:
        """The imported check for an entry of the index."""
        if check.route.check not in self.loaded:
            self.loaded[check.route.check] = load(self.entries[check.route.check])
        return self.loaded[check.route.check]


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> IndexedFile | None:
    """Collect a file of packaged checks from the index if that is current and no other plugin inspects the checks."""
    entries = _indexed(parent.config).get(str(module_path.resolve()))
    if entries is None:
        return None
    file: IndexedFile = IndexedFile.from_parent(parent, path=module_path)
    file.entries, file.loaded = entries, {}
    return file


def _indexed(config: pytest.Config) -> Mapping[str, Mapping[str, Entry]]:
    """The entries of the packaged checks by file; none if every file must be imported."""
    if INDEXED not in config.stash:
        files: dict[str, dict[str, Entry]] = {}
        with suppress(Stale):
            for check, entry in {} if are_others_in(config, _HOOKS) else read_index().items():
                path = entry["module"].removeprefix("clusterproof").replace(".", "/")
                files.setdefault(f"{PACKAGE}{path}.py", {})[check] = entry
        config.stash[INDEXED] = files
    return config.stash[INDEXED]


def load_chosen(items: Iterable[pytest.Item]) -> None:
    """Import the files of the selected checks."""
    for item in items:
        file = item.parent
        if isinstance(item, CheckItem) and isinstance(file, IndexedFile) and item.check.function is unloaded:
            item.check = file.load(item.check)


def node_items(item: CheckItem) -> list[CheckItem]:
    """The items of a check for each node."""
    return [item.on(target.name) for target in item.config.stash[CLUSTER].targets]


def pair_items(item: CheckItem) -> list[CheckItem]:
    """The items of a check for each measured pair; one item stands for all until the pairs are known."""
    run = item.config.stash.get(PAIRWISE, None)
    names = [pair.name for pair in run.pairs] if run else []
    return [item.on(name) for name in names or [ALL_PAIRS]]


def with_every_node(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items, with those that stand for every node replaced by one per node."""
    return _expanded(items, lambda item: item.node_name == EVERY_NODE, node_items)


def with_measured_pairs(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items, with those that stand for all pairs replaced by one per measured pair."""
    return _expanded(items, lambda item: item.check.is_of_pair and item.node_name == ALL_PAIRS, pair_items)


def _expanded(
    items: Iterable[pytest.Item],
    stands_for_more: Callable[[CheckItem], bool],
    into: Callable[[CheckItem], list[CheckItem]],
) -> list[pytest.Item]:
    made: list[pytest.Item] = []
    for item in items:
        made += into(item) if isinstance(item, CheckItem) and stands_for_more(item) else [item]
    return made


def expand_pairs(session: pytest.Session) -> None:
    """Replace placeholder items by one per pair, now that the pairs are known."""
    made = with_measured_pairs(session.items)
    session.testscollected += len(made) - len(session.items)
    session.items[:] = made


def _is_check(collector: pytest.Module, name: str, obj: object) -> bool:
    """Whether a module's attribute is a test that can be a light item."""
    if not inspect.isfunction(obj) or not collector.funcnamefilter(name) or not is_light(obj):
        return False
    marks = [*marks_of_pytest(obj), *collector.iter_markers()]
    return _ONLY_PYTEST_HONOURS.isdisjoint(mark.name for mark in marks) and not _needs_fixtures(collector, obj)


def _needs_fixtures(collector: pytest.Module, function: Callable[..., Any]) -> bool:
    """Whether a third-party fixture is involved: one with a device's name, which wins, or an autouse one."""
    manager = collector.session._fixturemanager  # noqa: SLF001 - pytest has no public name for it
    info = manager.getfixtureinfo(collector, function, None)  # type: ignore[arg-type] # a module will do
    return any(not is_ours(made) for every in info.name2fixturedefs.values() for made in every)


def _is_any_of_others(file: pytest.Module, names: Iterable[str]) -> bool:
    """Whether a third-party fixture has one of these names, or applies to every test of a file."""
    manager = file.session._fixturemanager  # noqa: SLF001 - pytest has no public name for it
    always = manager.getfixtureinfo(file, None, None).name2fixturedefs  # type: ignore[arg-type] # a module will do
    named = [manager.getfixturedefs(name, file) or () for name in names]
    return any(not is_ours(made) for every in (*always.values(), *named) for made in every)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that takes `node` and more with one pytest item per node."""
    if not asks_for_node(metafunc.definition) or _parametrizes_node(metafunc):
        return
    names = [target.name for target in metafunc.config.stash[CLUSTER].targets]
    metafunc.parametrize("node", names, ids=names, indirect=True, scope="session")


def _parametrizes_node(metafunc: pytest.Metafunc) -> bool:
    """Whether the test parametrizes `node` itself."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any("node" in str(mark.args[0] if mark.args else mark.kwargs.get("argnames")) for mark in marks)
