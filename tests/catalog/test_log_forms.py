"""The forms of kernel_log.toml: each verdict, scope and action is one that there is."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog.log_forms import LogForm, log_forms
from clusterproof.plugins.core.result import ACTIONS

DECIDED_ELSEWHERE = "by "  # so begin verdicts that need more than the line
VERDICTS = ("fail", "concern", "none")
SCOPES = (
    *("gpu", "nvswitch", "nic", "link", "pcie", "cpu", "memory"),
    *("node", "disk", "filesystem", "server", "neuron", "process"),
)


def wrong(form: LogForm) -> str:
    """What is not right about a form, else empty."""
    if not form.verdict.startswith((*VERDICTS, DECIDED_ELSEWHERE)) or form.scope not in SCOPES:
        return f"{form.verdict!r} of {form.scope!r}; expected one of {', '.join(VERDICTS)} and of {', '.join(SCOPES)}"
    if form.verdict == "fail" and (form.is_of_user or form.action not in ACTIONS):
        return f"it fails a node, by {form.who or 'the kernel'}: {form.action!r}; expected no user, and an action"
    unknown = [name for name in (*form.cleared_by, *form.after) if name not in log_forms()]
    return f"no form is called {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("form", log_forms().values(), ids=lambda form: form.name)
def test_every_form_is_right(form: LogForm) -> None:
    assert not wrong(form)


def test_every_scope_has_a_form() -> None:
    assert {form.scope for form in log_forms().values()} == set(SCOPES)
