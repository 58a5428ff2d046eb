"""The evidence that a check reads: recorded for packaged checks, declared by other authors, else everything."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from clusterproof.plugins.core.result import CLUSTER_SUBJECTS, MEMBER_SUBJECT
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.evidence.fact import IN_JOB, LOAD_COLLECTORS, ONLY_CAPTURED

FILE = Path(__file__).with_name("needs.json")  # made by `scripts/generate needs`, which observes the checks
CHECKS = Path(__file__).resolve().parents[2] / "checks"  # those that are packaged
PAIRWISE = "pairwise"  # listed among the collectors; stands for measurements of pairs of nodes

F = TypeVar("F", bound=Callable[..., Any])


def reads(*collectors: str) -> Callable[[F], F]:
    """Declare which collectors a check reads, besides its device; `pairwise` stands for measurements of pairs.

    A check that declares nothing gets all evidence except those measurements and what is only collected during a job.
    The values of a site's own collectors are always available. Raises ValueError for an unknown collector.
    """
    known = {PAIRWISE, *node_collectors(), *control_plane_collectors()}
    for name in collectors:
        if name not in known:
            raise ValueError(f"reads({name!r:.60}): no collector is called so{nearest(name, known)}")

    def attach(function: F) -> F:
        function.__reads__ = collectors  # type: ignore[attr-defined]
        return function

    return attach


@cache
def recorded() -> Mapping[str, frozenset[str]]:
    """The collectors read, by id of a packaged check and by kind of device."""
    document: Mapping[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {name: frozenset(collectors) for name, collectors in document.items()}


@cache  # called for each item of a run
def needs_of(check: str, subject: str, function: Callable[..., Any]) -> frozenset[str]:
    """The collectors that a check of this id and subject reads; includes `pairwise` if it uses pairs."""
    if _is_packaged(function):
        return recorded().get(
            check, control_plane_collectors() if subject in (*CLUSTER_SUBJECTS, MEMBER_SUBJECT) else node_collectors()
        )
    collectors: tuple[str, ...] | None = getattr(function, "__reads__", None)
    if collectors is None:
        return node_collectors() - IN_JOB | control_plane_collectors()
    return recorded().get(subject, frozenset()).union(collectors)


def unloaded(**_: object) -> NoReturn:
    """Placeholder for the function of a check whose file is not yet imported."""
    raise LookupError("the file of this check was not imported")


def _is_packaged(function: Callable[..., Any]) -> bool:
    return function is unloaded or Path(inspect.unwrap(function).__code__.co_filename).resolve().is_relative_to(CHECKS)


@cache
def node_collectors() -> frozenset[str]:
    """Every collector of a node, including those that put load on it and those that only captures have."""
    from clusterproof.plugins.agent.program import collector_names

    return ONLY_CAPTURED.union(collector_names(), LOAD_COLLECTORS)


@cache
def control_plane_collectors() -> frozenset[str]:
    """Every collector that asks AWS, Slurm or Kubernetes about the cluster."""
    from clusterproof.plugins.aws.collectors import collector_names
    from clusterproof.plugins.evidence.cluster import NOT_OF_AWS

    return NOT_OF_AWS.union(collector_names())
