"""Where a command on a node finds programs and libraries: not where another user could have put them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterproof.plugins.agent.payload import new_nonce
from clusterproof.plugins.benchmarks.launchers.visit import MAX_BYTES, Visitor
from clusterproof.plugins.benchmarks.meters import NOT_FOUND, Output, finding_program
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Limits, connection_for
from tests.testbed.needs import needs_root


def visited(*commands: str) -> tuple[Output, ...]:
    asked = [{"shell": command, "environment": {}} for command in commands]
    request = {"run": new_nonce(), "commands": asked, "deadline_s": 30.0, "most_bytes": MAX_BYTES}
    return Visitor(connection_for("local"), Limits(answer_s=60.0)).visit(Target("here"), request, 60.0).outputs


@pytest.mark.long
def test_nothing_that_lies_where_a_command_runs_is_run_or_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f":.:bin:{os.environ['PATH']}:")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib::.:")
    words = visited('echo "$PATH"; echo "$LD_LIBRARY_PATH"')[0].text.split("\n")
    assert all(folder.startswith("/") for folder in words[0].split(":"))
    assert words[1] == "/opt/lib"


@needs_root
@pytest.mark.long
def test_root_runs_no_program_that_another_user_could_have_put_on_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for collectors (agent/tools.py); `--meter-program` names one all the same."""
    (tmp_path / "iperf3").write_text("#!/bin/sh\necho sprung\n")
    (tmp_path / "iperf3").chmod(0o755)
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("PATH", f"{tmp_path}:{tmp_path}/none:/usr/bin:/bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:/usr/lib")
    find = finding_program("iperf3", "", (), "install it")
    output = visited(f'{find}; "$program"', "echo $PATH; echo $LD_LIBRARY_PATH")
    assert "sprung" not in output[0].text
    assert [line for line in output[1].text.split(":") if str(tmp_path) in line] == []
    if output[0].exit == NOT_FOUND:
        assert f"install it; not looked in {tmp_path}: {tmp_path} may be written by others" in output[0].text
