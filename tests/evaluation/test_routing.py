"""What a check's docstring says: title, meaning, and the remedy with its action."""

from __future__ import annotations

import pytest

from clusterproof.plugins.evaluation.routing import parse_docstring


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("Remedy: Open a case.", "investigate"),
        ("Remedy (replace): Open a case.", "replace"),
        ("Remedy (Reset or reboot): Open a case.", "reset or reboot"),
        ("Remedy (RMA): Open a case.", "RMA"),
        ("Remedy (re-seat): Open a case.", "re-seat"),
        ("Remedy (call the DC): Open a case.", "call the DC"),
    ],
)
def test_an_action_is_of_the_suite_or_the_authors_own(written: str, action: str) -> None:
    def test_fans() -> None: ...

    test_fans.__doc__ = f"Fans.\n\n    A GPU without air is slow.\n\n    {written}\n"
    assert parse_docstring(test_fans) == ("Fans", "A GPU without air is slow.", action, "Open a case.")
