"""Reports that pytest and pytest-html write: one that cannot be written costs that report, and not the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.opened import NO_ROOM
from clusterproof.plugins.suite.state import note_unwritten

_WRITERS = (("_pytest.junitxml", "--junitxml", "xmlpath"), ("pytest_html", "--html", "htmlpath"))


def guard_writers(config: pytest.Config) -> None:
    """Keep a report that cannot be written from ending the run; no half of it stays."""
    for hooked in config.hook.pytest_sessionfinish.get_hookimpls():
        for module, option, attribute in _WRITERS:
            if str(hooked.function.__module__).startswith(module):
                path = config.getoption(attribute, None)
                hooked.function = _guarded(config, hooked.function, option, Path(path) if path else None)  # type: ignore[misc]


def guard_beginning_of_html(config: pytest.Config) -> None:
    """The same for the style sheet that pytest-html writes before the run; a wrong path ends it before it begins."""
    for hooked in config.hook.pytest_configure.get_hookimpls():
        if str(hooked.function.__module__).startswith("pytest_html"):
            hooked.function = _begun(config, hooked.function)  # type: ignore[misc]


def _guarded(config: pytest.Config, write: Callable[..., Any], option: str, path: Path | None) -> Callable[..., Any]:
    def guarded(*given: Any) -> Any:
        try:
            return write(*given)
        except OSError as problem:
            note_unwritten(config, option, problem)
            if path:
                with suppress(OSError):
                    path.unlink()
            return None

    return guarded


def _begun(config: pytest.Config, begin: Callable[..., Any]) -> Callable[..., Any]:
    def begun(*given: Any) -> Any:
        try:
            return begin(*given)
        except OSError as problem:
            where = problem.filename or config.getoption("htmlpath")
            if problem.errno not in NO_ROOM:
                words = f"--html: {where}: {problem.strerror or problem}; expected a file that may be written"
                raise pytest.UsageError(words) from None
            note_unwritten(config, "--html", problem)
            (Path(config.getoption("htmlpath")).parent / "assets" / "style.css").unlink(missing_ok=True)
            return None

    return begun
