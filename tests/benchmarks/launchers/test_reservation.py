"""A reservation in Slurm of which nobody hears ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.launchers import allocation

RESERVE = {"do": "reserve", "name": "clusterproof-a", "job": "", "names": ["n1"]}
RUN = {"do": "run", "name": "clusterproof-a", "job": "7", "is_ours": True}
PROGRAM = """
import json, sys
from clusterproof.plugins.benchmarks.launchers import on_submit_host
{lost}
def ask(*command):
    print(json.dumps(command), file=sys.stderr)
    return 0, ""
on_submit_host.ask = ask
on_submit_host.main(json.loads(sys.argv[1]), "nonce", "")
"""
AT_THE_END = """
def broken(*_): raise BrokenPipeError
on_submit_host.send = broken
on_submit_host.answer = lambda request: {"job": "7"}
"""
BEFORE = """
def gone(*_): raise on_submit_host.Disconnected
on_submit_host.reserve = on_submit_host.run = gone
"""


@pytest.mark.parametrize("lost", [AT_THE_END, BEFORE])
@pytest.mark.parametrize(
    ("request_", "cancelled"),
    [
        (RESERVE, ["scancel", "--name=clusterproof-a"]),
        (RUN, ["scancel", "7"]),
        ({**RESERVE, "job": "7"}, None),
        ({**RUN, "is_ours": False}, None),
    ],
)
def test_a_job_of_ours_ends_if_who_asked_for_it_is_gone(
    request_: dict[str, object], cancelled: list[str] | None, lost: str
) -> None:
    command = [sys.executable, "-c", PROGRAM.format(lost=lost), json.dumps(request_)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert [json.loads(line) for line in ran.stderr.splitlines()] == ([cancelled] if cancelled else [])


def test_nothing_that_may_fail_follows_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(*command: str) -> tuple[int, str]:
        asked.append(command[0])
        return 0, "NodeName=n1 State=IDLE Partitions=p"

    monkeypatch.setattr(allocation, "ask", ask)
    monkeypatch.setattr(allocation, "allocate", lambda *_: asked.append("salloc") or ("7", {}))
    assert allocation.reserve(RESERVE)["job"] == "7"
    assert asked[-1] == "salloc"
