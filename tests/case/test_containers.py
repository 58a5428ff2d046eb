"""Output of containers: the prefixes that runtimes add to lines date them and hide nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.output import Output, OutputSource, read
from tests.case.files import BROKEN_GPU, STEPS, case_of

AT = "2026-03-01T08:00:{second:02d}.123456789Z"
CRASH = (
    "3: Traceback (most recent call last):",
    '3:   File "train.py", line 1',
    "3: mylib.BatchRefused: no batch left",
)
FORMS = {
    "kubectl logs --timestamps": "{at} {line}",
    "kubectl logs --prefix --timestamps": "[pod/train-0/main] {at} {line}",
    "the files of the CRI": "{at} stderr F {line}",
    "docker compose logs": "worker-1  | {line}",
    "docker compose logs -t": "worker-1  | {at} {line}",
}


def of(lines: list[str], node: str = "") -> Output:
    return read(lines, OutputSource("a.log", None, node), Clock(2026))


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_and_its_rank_are_seen_behind_what_a_runtime_puts_before_it(form: str) -> None:
    lines = [FORMS[form].format(at=AT.format(second=at), line=line) for at, line in enumerate(CRASH)]
    events = of(lines).events
    assert [(event.sign, event.rank, event.words) for event in events] == [
        ("exception_unknown", 3, "mylib.BatchRefused: no batch left")
    ]
    assert events[0].when.is_known is ("{at}" in FORMS[form])


def test_so_they_are_in_dockers_own_files() -> None:
    lines = [json.dumps({"log": f"{line}\n", "time": AT.format(second=1)}, separators=(",", ":")) for line in CRASH]
    assert [(event.sign, event.rank) for event in of(lines).events] == [("exception_unknown", 3)]
    assert of(['{"log":"x', '{"log":3}', '{"log":"y","time":7}']).events == ()


def test_the_node_of_a_container_is_where_it_ran_and_not_what_it_calls_itself() -> None:
    nccl = "train-worker-3:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1"
    output = of([nccl, "[rank3]: KeyError: 'image'"], node="gpu003")
    assert output.nodes_of_ranks == {3: "gpu003"}
    assert [event.node for event in output.events] == ["gpu003"]


@pytest.mark.parametrize("form", FORMS)
def test_the_verdict_is_the_same_behind_them(form: str, tmp_path: Path) -> None:
    def wrapped(text: str) -> str:
        at = text.split(",", 1)[0].replace(" ", "T") if text[:2] == "20" else ""
        stamp = f"{at}.000000001Z" if at else AT.format(second=0)
        return "".join(f"{FORMS[form].format(at=stamp, line=line)}\n" for line in text.splitlines())

    files = {name: wrapped(text) if name.startswith("rank") else text for name, text in BROKEN_GPU.items()}
    files["rank_3.log"] = STEPS + BROKEN_GPU["rank_3.log"].removeprefix(STEPS)
    assert case_of(tmp_path, files).verdict.nodes == ("gpu003",)
