"""A CI job's log: text from a node is never a command to the CI system, however writes split it."""

from __future__ import annotations

import io
import re

import pytest

from clusterproof.plugins.core.escaping import JobLog, as_job_log, without_commands

GITHUB_OR_AZURE = re.compile(r"(?:^|[\r\n])\s*::|##\w*\[")
COMMANDS = [
    "::stop-commands::tok",
    "  ::error::x",
    "\u2003\x0b::error::x",
    "a\n ::add-mask::b",
    "a\r::set-env name=A::b",
    "\n\n\n::error::x",
    ":::x",
    "a ##[error]b",
    "###[error]b ##[group]",
    "a ##vso[task.setvariable]b",
]


@pytest.mark.parametrize("text", COMMANDS)
@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_no_text_is_a_command_and_nothing_of_it_is_lost(text: str, piece: int) -> None:
    assert GITHUB_OR_AZURE.search(text)
    log = JobLog(io.StringIO())
    log.writelines(text[begin : begin + piece] for begin in range(0, len(text), piece))
    assert not GITHUB_OR_AZURE.search(log.getvalue())
    assert log.getvalue().replace("\\", "") == text


@pytest.mark.parametrize("text", ["", "a :: b", "tests/a.py::test_b", "# [x]", "## x", "a::b\nc [1]"])
def test_other_text_is_as_it_was(text: str) -> None:
    assert without_commands("", text) == text


def test_a_command_that_is_meant_is_one_with_no_other_in_it() -> None:
    log = JobLog(io.StringIO())
    with log.commands():
        log.write("::error title=x::##[error]y\n")
    log.write("::error::z")
    assert log.getvalue() == "::error title=x::##\\[error]y\n:\\:error::z"


@pytest.mark.long
def test_a_long_text_takes_work_by_its_length() -> None:
    assert without_commands("", " " * 10**6) == " " * 10**6
    assert without_commands("", "\n" * 10**6) == "\n" * 10**6
    assert without_commands("", "#" * 10**6) == "#" * 10**6


@pytest.mark.parametrize(
    ("variable", "value", "is_log"),
    [("GITHUB_ACTIONS", "true", True), ("TF_BUILD", "True", True), ("GITHUB_ACTIONS", "", False)],
)
def test_streams_are_changed_only_where_commands_are_read(
    variable: str, value: str, is_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("TF_BUILD", raising=False)
    monkeypatch.setenv(variable, value)
    stream = as_job_log(io.StringIO())
    assert isinstance(stream, JobLog) is is_log
    assert as_job_log(stream) is stream
