"""What the command line selects: which checks run, what they need, and messages if none is selected or ends."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import MarkMatcher
from _pytest.mark.expression import Expression  # pytest has no public API for -m expressions

from clusterproof.plugins.core.cluster import Cluster, is_of_aws, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.policy import disabled_reason
from clusterproof.plugins.core.record import names_of, record, replace
from clusterproof.plugins.core.result import INTERRUPTED, Result
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import not_run, result_of
from clusterproof.plugins.evaluation.index import ALWAYS
from clusterproof.plugins.evaluation.needs import PAIRWISE, needs_of, node_collectors
from clusterproof.plugins.evaluation.routing import Route
from clusterproof.plugins.evidence.aws.by_evidence import may_be_on_ec2
from clusterproof.plugins.evidence.cluster import SLURM_COLLECTOR, is_of_instances
from clusterproof.plugins.evidence.kubernetes.facts import NODES
from clusterproof.plugins.evidence.recording import write_whole
from clusterproof.plugins.suite.items import CheckItem, asks_for_node, node_name, owner_of, route_of, subject_of
from clusterproof.plugins.suite.state import policy_of

PACKAGE = str(Path(__file__).resolve().parents[2])
_BY_LAST_RUN = ("lf", "failedfirst", "newfirst", "stepwise")
_HOOKS = ("pytest_itemcollected", "pytest_collection_modifyitems")
_OTHERS_ARE_MARKED: pytest.StashKey[bool] = pytest.StashKey()


def is_selected(config: pytest.Config, marks: Iterable[pytest.Mark]) -> bool:
    """Whether `-m` may select a check with these marks; one item stands for all nodes of a check that it deselects."""
    if not config.option.markexpr or _marks_may_follow(config):
        return True
    try:
        return _compiled(config.option.markexpr).evaluate(MarkMatcher.from_markers(marks))
    except SyntaxError:
        return True  # pytest reports the error


def are_interchangeable(config: pytest.Config) -> bool:
    """Whether items of a check are indistinguishable until all are collected, so that one stands for them."""
    is_by_name = config.option.keyword or config.option.deselect or any("::" in word for word in config.args)
    return not (is_by_name or any(config.getoption(name, False) for name in _BY_LAST_RUN) or _marks_may_follow(config))


def chooses(markexpr: str, names: Collection[str]) -> bool:
    """Whether `-m` selects a test with these marks. Raises SyntaxError."""

    def is_marked(name: str, /, **_: str | int | bool | None) -> bool:
        return name in names

    return _compiled(markexpr).evaluate(is_marked)


@cache
def _compiled(markexpr: str) -> Expression:
    return Expression.compile(markexpr)


def _marks_may_follow(config: pytest.Config) -> bool:
    """Whether another plugin sees items before `-m` does, and may mark individual ones."""
    if _OTHERS_ARE_MARKED not in config.stash:
        config.stash[_OTHERS_ARE_MARKED] = are_others_in(config, _HOOKS)
    return config.stash[_OTHERS_ARE_MARKED]


def are_others_in(config: pytest.Config, hooks: Iterable[str]) -> bool:
    """Whether a third-party plugin or conftest implements one of these hooks."""
    hooked_functions = (hooked.function for name in hooks for hooked in getattr(config.hook, name).get_hookimpls())
    return any(not _is_known(function) for function in hooked_functions)


def _is_known(function: object) -> bool:
    """Whether a hook implementation is pytest's, xdist's or the suite's own."""
    module = str(getattr(function, "__module__", "")).partition(".")[0]
    code = getattr(function, "__code__", None)
    is_ours = code is not None and str(Path(code.co_filename).resolve()).startswith(PACKAGE)
    return is_ours or module in ("_pytest", "clusterproof", "xdist")


PLACEMENT = frozenset({"hyperpod_nodes", "zones", "instances", "instance_topology"})  # for locations of nodes
INSTANCE_IDENTITY = frozenset({"imds", "platform"})  # whether they are EC2 instances, and which
INSTANCE_TYPE = frozenset(
    {"imds", "platform", "resource_config", "rdma", "nvml", "versions"}
)  # and of which kind they are


def one_of_each(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The first item of each check that runs, and every other item: a check needs the same on each node."""
    first: dict[int, pytest.Item] = {}
    for item in items:
        first.setdefault(id(item.check if isinstance(item, CheckItem) else item), item)
    return [item for item in first.values() if not (isinstance(item, CheckItem) and item.why_not_queried)]


def collectors_of_nodes(items: list[pytest.Item], cluster: Cluster) -> frozenset[str]:
    """The collectors to run on nodes; none if every check is of the cluster and uses no node."""
    collectors = frozenset[str]().union(*(collectors_of(item) for item in items))
    if may_be_on_ec2(cluster) and is_of_instances(collectors_of_control_plane(items, cluster)):
        collectors |= INSTANCE_IDENTITY
    if any(needs_pairs(item) for item in items):
        collectors |= INSTANCE_TYPE
    looks_at_nodes = any(
        not (isinstance(item, CheckItem) and (item.check.is_of_cluster or item.check.is_of_run)) for item in items
    )
    return collectors | ALWAYS if collectors or looks_at_nodes else collectors


def collectors_of_control_plane(items: list[pytest.Item], cluster: Cluster) -> frozenset[str]:
    """The control-plane collectors to run; includes nodes' locations if pairs are measured."""
    collectors = frozenset[str]().union(
        *(item.check.control_collectors for item in items if isinstance(item, CheckItem))
    )
    if any(needs_pairs(item) for item in items):
        collectors |= PLACEMENT if is_of_aws(cluster) else frozenset[str]()
        collectors |= frozenset({SLURM_COLLECTOR}) if is_of_slurm(cluster) else frozenset[str]()
        collectors |= frozenset({NODES}) if is_of_kubernetes(cluster) else frozenset[str]()
    return collectors


def collectors_of(item: pytest.Item) -> frozenset[str]:
    """The evidence collectors that an item needs."""
    if isinstance(item, CheckItem):
        return item.check.collectors
    if asks_for_node(item):
        return needs_of(item.name, "node", item.function) & node_collectors()  # type: ignore[attr-defined]
    return frozenset()


def needs_pairs(item: pytest.Item) -> bool:
    """Whether an item needs pairs of nodes to be measured."""
    if isinstance(item, CheckItem):
        return item.check.needs_pairs
    return PAIRWISE in getattr(item, "fixturenames", ()) or (
        asks_for_node(item) and PAIRWISE in needs_of(item.name, "node", item.function)  # type: ignore[attr-defined]
    )


MAX_NODES = 1_000  # maximum number of names to compare with a word
_OPERATORS = frozenset({"and", "or", "not", "True", "False", "None"})
_WORD = re.compile(r"[^\W\d][\w.\-]*")
_IN_BRACKETS = re.compile(r"\(\s*\w+\s*=[^()]*\)")  # arguments of a mark: `mark(section="G")`


def misspelt_mark(markexpr: str, lines: Iterable[str], borne: Collection[str] = ()) -> str:
    """An error if a mark is unknown and a known one is similar; else empty.

    `lines` are the registered marks; `borne` are marks on tests, registered or not.
    """
    names = {re.split(r"[:(]", line, maxsplit=1)[0].strip() for line in lines} | set(borne)
    for word in _names_in(_IN_BRACKETS.sub("", markexpr)):
        near = "" if word in names else nearest(word, names)
        if near:
            return f"-m {markexpr!r}: no mark is called {word!r}{near}; clusterproof --markers lists them"
    return ""


def nothing_chosen(keyword: str, cluster: Cluster) -> str:
    """A message if `-k` has selected nothing."""
    from clusterproof.plugins.evaluation.all_checks import all_checks  # imports every check

    nodes = [target.name for target in cluster.targets[:MAX_NODES]]
    known = [*(name.partition(".")[2] for name in all_checks()), *nodes]
    unknown = [word for word in _names_in(keyword) if not any(word.lower() in name.lower() for name in known)]
    near = next(filter(None, (nearest(word.removeprefix("test_"), known) for word in unknown)), "")
    return f"-k {keyword!r} chooses nothing{near}; clusterproof checks lists what there is"


def _names_in(expression: str) -> Iterator[str]:
    return (word for word in _WORD.findall(expression) if word not in _OPERATORS)


def refuse_wrong_words(config: pytest.Config) -> None:
    """Reject invalid words in `-m` and `-k` before nodes are asked. Raises pytest.UsageError."""
    for flag, expression in (("-m", config.option.markexpr), ("-k", config.option.keyword)):
        try:
            _compiled(expression or "True")
        except SyntaxError as wrong:
            raise pytest.UsageError(f"{flag} {expression!r}: {wrong.msg}") from None
    start_folder = config.invocation_params.dir
    if all((start_folder / str(word)).resolve().is_relative_to(PACKAGE) for word in config.args):
        refuse_misspelt_mark(config, ())  # only without third-party tests, which may have their own marks


def refuse_misspelt_mark(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError if `-m` has a mark that no test has, and a known one is similar."""
    lines, markexpr = config.getini("markers"), config.option.markexpr
    if misspelt_mark(markexpr, lines):
        wrong = misspelt_mark(markexpr, lines, {mark.name for item in items for mark in item.iter_markers()})
        if wrong:
            raise pytest.UsageError(wrong)


FILE = "chosen.json"  # in the folder that workers share with the reporting process, which collects nothing itself

Ended = Counter[tuple[str, str]]  # by check and node: how often the check ended


@record
class Chosen:
    """A check, and the names of its selected subjects: nodes, pairs, the cluster, a training run."""

    check: Check
    names: Sequence[str]


def chosen_of(items: Iterable[pytest.Item]) -> list[Chosen]:
    """The checks among a run's items, in order."""
    names: dict[int, list[str]] = {}
    checks: dict[int, Check] = {}
    for item in items:
        about = route_of(item)
        if about:
            number = id(about)
            checks.setdefault(number, item.check if isinstance(item, CheckItem) else _as_check(about))
            names.setdefault(number, []).append(node_name(item))
    return [Chosen(check, names[number]) for number, check in checks.items()]


def unevaluated(config: pytest.Config, chosen: Iterable[Chosen], ended: Ended, why: str) -> Iterator[Result]:
    """A result for each check that did not end."""
    left = ended.copy()
    for each in chosen:
        route = replace(each.check.route, by_hand=None, remedied_by=None)  # they read facts, and nothing was found
        check = replace(each.check, route=route)
        for name in each.names:
            if left[route.check, name]:
                left[route.check, name] -= 1
            else:
                yield _unevaluated(config, check, name, why)


def _unevaluated(config: pytest.Config, check: Check, name: str, why: str) -> Result:
    """Never a failure by policy: a rule for *incomplete* is about nodes that were evaluated."""
    owner, policy = owner_of(config, check, name), policy_of(config)
    rule = policy.disables(check.route.check, owner.name)
    if rule:
        return not_run(check, owner, disabled_reason(rule, policy.source))
    result = result_of(check.route, owner, Incomplete(f"not evaluated: {why}", INTERRUPTED), 0.0)
    return replace(result, subject=subject_of(check, owner), team=policy.team_of(result))


def write_chosen(folder: Path, items: Iterable[pytest.Item]) -> None:
    """Write what a worker has collected; all of them collect the same. Raises OSError."""
    path = folder / FILE
    if not path.exists():
        write_whole(path, json.dumps([_to_json(each) for each in chosen_of(items)]))


def read_chosen(folder: Path) -> list[Chosen]:
    """Read what the workers have collected; empty if none of them got that far."""
    path = folder / FILE
    return [_from_json(each) for each in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def _to_json(chosen: Chosen) -> dict[str, Any]:
    route = chosen.check.route
    texts = {name: value for name in names_of(Route) if isinstance(value := getattr(route, name), str)}
    return {"route": texts, "subject": chosen.check.subject, "names": list(chosen.names)}


def _from_json(chosen: dict[str, Any]) -> Chosen:
    return Chosen(_check(Route(**chosen["route"]), chosen["subject"]), chosen["names"])


def _as_check(about: Route) -> Check:
    """A test that pytest itself runs, as a check."""
    return _check(about, "node")


def _not_called() -> None:
    """Placeholder for the function of a check that another process, or pytest, calls."""


def _check(about: Route, subject: str) -> Check:
    """A check that is only described, not called."""
    return Check(_not_called, subject, False, about, "", 0)
