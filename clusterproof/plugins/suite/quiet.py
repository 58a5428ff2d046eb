"""What is well in a large run is kept and counted past pytest's hooks: no plugin says or does anything about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.report import KeptReport

if TYPE_CHECKING:
    from clusterproof.plugins.suite.check_item import CheckItem
    from clusterproof.plugins.suite.outcomes import Outcomes

IS_WELL = (Verdict.PASS, Verdict.NOT_APPLICABLE)
_HOOKS = ("pytest_runtest_logstart", "pytest_runtest_logreport", "pytest_runtest_logfinish")
# They do nothing about what is well, or only what `Quiet` does in their place.
_READ_LITTLE = ("clusterproof.", "_pytest.cacheprovider", "_pytest.logging", "_pytest.main", "_pytest.terminal")


class Quiet:
    """Keeps what is well, in the place of what receives reports: the suite's own outcomes, and pytest's terminal."""

    def __init__(self, config: pytest.Config, outcomes: Outcomes) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        cache = getattr(config, "cache", None)
        self._outcomes = outcomes
        self._stats: dict[str, list[object]] = reporter.stats if reporter else {}
        self._failed_last = cache.get("cache/lastfailed", {}) if cache else {}  # pytest is to know that it passes now

    @classmethod
    def of(cls, config: pytest.Config) -> Quiet | None:
        """None where a plugin handles every test, or the terminal prints something for each."""
        receivers = [hooked for name in _HOOKS for hooked in getattr(config.hook, name).get_hookimpls()]
        outcomes: Outcomes | None = config.pluginmanager.get_plugin("clusterproof-outcomes")
        has_no_reader = all(str(hooked.function.__module__).startswith(_READ_LITTLE) for hooked in receivers)
        return cls(config, outcomes) if outcomes and outcomes.is_large and has_no_reader else None

    def takes(self, item: CheckItem, result: Result, started: float) -> bool:
        """Keep a result that is well; False where pytest's hooks are to have it, as the first of its kind."""
        if result.verdict not in IS_WELL or (self._failed_last and item.nodeid in self._failed_last):
            return False
        counted = self._stats.get(self._outcomes.category(result))
        if not counted:
            return False
        report = KeptReport(item, result, started)
        self._outcomes.keep(report, result)
        counted.append(report)
        return True
