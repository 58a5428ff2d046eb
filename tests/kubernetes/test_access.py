"""Credentials are asked for again and again, but not for each request."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clusterproof.plugins.kubernetes import access


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as its last entry."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[-1])
    return now


def test_a_token_is_asked_for_anew_once_it_has_been_kept_so_long(clock: list[float]) -> None:
    tokens: Iterator[str] = iter("abc")
    authorization = access.kept_for(5, lambda: next(tokens))
    seen = []
    for now in (100.0, 104.9, 105.0, 109.9, 110.0):
        clock.append(now)
        seen.append(authorization())
    assert seen == ["a", "a", "b", "b", "c"]


@pytest.mark.usefixtures("clock")
def test_what_failed_is_not_kept() -> None:
    answers: Iterator[str | Exception] = iter([OSError("no helper"), "token"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    authorization = access.kept_for(5, ask)
    with pytest.raises(OSError, match="no helper"):
        authorization()
    assert authorization() == "token"
