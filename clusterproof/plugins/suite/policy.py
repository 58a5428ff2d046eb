"""A run under a site's policy: says in the header what it changes, and keeps disabled tests from running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusterproof.plugins.catalog import thresholds
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.policy import Policy, words_of
from clusterproof.plugins.policy import refuse_unknown
from clusterproof.plugins.suite.items import CheckItem, node_name, route_of


class SitePolicy:
    """The plugin object of a run that has a policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def pytest_report_header(self) -> list[str]:
        """What the policy changes, a line each."""
        return [f"policy: {self.policy.source}", *(f"policy: {line}" for line in changes(self.policy))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse rules about nothing; skip the disabled tests that pytest itself runs. Raises pytest.UsageError."""
        named = {*self.policy.disabled, *self.policy.readings}
        if not named:
            return
        routes = {item: route_of(item) for item in items}
        ids = {item: about.check for item, about in routes.items() if about}
        if not named <= set(ids.values()):
            try:
                refuse_unknown(self.policy, frozenset(ids.values()) | _packaged())
            except InventoryError as wrong:
                raise pytest.UsageError(str(wrong)) from None
        for item, check in ids.items():
            rule = self.policy.disables(check, node_name(item))
            if rule and not isinstance(item, CheckItem):
                item.add_marker(pytest.mark.skip(reason=words_of(rule, self.policy.source)))


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
        if rule.holds(policy.today):
            where = f" on {fold(rule.nodes)}" if rule.nodes else ""
            yield f"{check} is disabled{where} until {rule.until}: {rule.reason}"
        else:
            yield f"{check} runs: its exception ended on {rule.until} ({rule.reason})"
    for key, readings in policy.readings.items():
        for verdict, read_as in readings.items():
            yield f"{verdict.value} of {key} is read as {read_as.value}"
    yield from _further_expectations(policy)


def _further_expectations(policy: Policy) -> Iterator[str]:
    if policy.versions:
        yield f"expects {number_of(len(policy.versions), 'version')} in an image"
    if policy.mounts:
        yield f"expects mounted {', '.join(policy.mounts)}"
    if policy.checkpoints:
        yield f"checkpoints go to {', '.join(policy.checkpoints)}"


def _packaged() -> frozenset[str]:
    """The ids of all packaged checks, also of those that this run leaves out."""
    from clusterproof.plugins.evaluation.all_checks import (
        all_checks,  # imports every check: only where a rule asks for it
    )

    return frozenset(all_checks())
