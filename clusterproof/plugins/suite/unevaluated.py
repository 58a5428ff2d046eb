"""What was chosen and did not end before the run did: each such check is incomplete on each such node, and says why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.policy import words_of
from clusterproof.plugins.core.record import names_of, record, replace
from clusterproof.plugins.core.result import INTERRUPTED, Result
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import not_run, result_of
from clusterproof.plugins.evaluation.routing import Route
from clusterproof.plugins.evidence.recording import write_whole
from clusterproof.plugins.suite.items import CheckItem, node_name, owner_of, route_of, subject_of
from clusterproof.plugins.suite.state import policy_of

FILE = "chosen.json"  # in the folder that a worker shares with the process that reports, which collects nothing itself

Ended = Counter[tuple[str, str]]  # by check and node: how often the check came to its end


@record
class Chosen:
    """A check, and the names of what it was chosen for: nodes, pairs, the cluster, a training run."""

    check: Check
    names: Sequence[str]


def chosen_of(items: Iterable[pytest.Item]) -> list[Chosen]:
    """The checks among a run's items, in their order."""
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
    """No failure by any policy: one that reads *incomplete* as that speaks of nodes that were evaluated."""
    owner, policy = owner_of(config, check, name), policy_of(config)
    rule = policy.disables(check.route.check, owner.name)
    if rule:
        return not_run(check, owner, words_of(rule, policy.source))
    result = result_of(check.route, owner, Incomplete(f"not evaluated: {why}", INTERRUPTED), 0.0)
    return replace(result, subject=subject_of(check, owner), team=policy.team_of(result))


def write_chosen(folder: Path, items: Iterable[pytest.Item]) -> None:
    """Write what a worker has collected; all of them collect the same. Raises OSError."""
    path = folder / FILE
    if not path.exists():
        write_whole(path, json.dumps([_to_json(each) for each in chosen_of(items)]))


def read_chosen(folder: Path) -> list[Chosen]:
    """What the workers have collected; nothing where none of them came so far."""
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


def _check(about: Route, subject: str) -> Check:
    """A check that is spoken of, and not called."""
    return Check(print, subject, False, about, "", 0)
