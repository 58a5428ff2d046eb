"""Containers and their nodes: the prefixes of runtimes date lines and hide nothing; monitors mark nodes as ill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.case import Job, Span, kubernetes
from clusterproof.plugins.case.advice import DRAIN, Case, opened_case
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.output import Output, OutputSource
from clusterproof.plugins.case.runs_of_log import read
from clusterproof.plugins.kubernetes.nodes import node_of
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


class Log:
    """The API of a cluster in which each container printed this."""

    def __init__(self, *lines: str) -> None:
        self.content = "\n".join(lines).encode()

    def text(self, _path: str, _most: int, **_query: str) -> bytes:
        return self.content


@pytest.mark.parametrize("role", ["training.kubeflow.org/job-role", "training.kubeflow.org/replica-type"])
@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("train-worker-3:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1", "gpu003"),
        ("process rank 3 with PID 7 on node train-worker-3 exited on signal 9 (Killed).", "gpu003"),
        ("training begins", ""),
    ],
)
def test_the_ranks_that_an_mpijobs_launcher_prints_are_not_on_its_own_node(role: str, line: str, node: str) -> None:
    builder = CaseBuilder()
    log: Any = Log(line, "[1,3]<stderr>:[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered")
    reader = kubernetes._Reader(log, "default/train", builder, Clock(2026))
    pod = {
        "metadata": {"name": "train-launcher-x", "labels": {role: "launcher"}},
        "spec": {"nodeName": "cpu001.example"},
        "status": {"containerStatuses": [{"name": "mpi"}]},
    }
    reader.take_pod(pod, {"train-launcher-x": "cpu001", "train-worker-3": "gpu003"})
    (output,) = builder.outputs
    assert [(event.rank, event.node) for event in output.events if event.sign == "ecc"] == [(3, node)]
    assert output.nodes_of_ranks == ({3: node} if node else {})


@pytest.mark.parametrize("form", FORMS)
def test_the_verdict_is_the_same_behind_them(form: str, tmp_path: Path) -> None:
    def wrapped(text: str) -> str:
        at = text.split(",", 1)[0].replace(" ", "T") if text[:2] == "20" else ""
        stamp = f"{at}.000000001Z" if at else AT.format(second=0)
        return "".join(f"{FORMS[form].format(at=stamp, line=line)}\n" for line in text.splitlines())

    files = {name: wrapped(text) if name.startswith("rank") else text for name, text in BROKEN_GPU.items()}
    files["rank_3.log"] = STEPS + BROKEN_GPU["rank_3.log"].removeprefix(STEPS)
    assert case_of(tmp_path, files).verdict.nodes == ("gpu003",)


RAN = Span(1_772_348_400.0, 1_772_352_630.0)  # 2026-03-01 07:00:00 to 08:10:30 UTC
NVIDIA_79 = {"reason": "NvidiaXID79Error", "message": "GPU has fallen off the bus"}


def _marked(labels: dict[str, str], *conditions: dict[str, str]) -> Case:
    """A job that failed on a node which its monitors describe so."""
    node = node_of({"metadata": {"name": "n1.x", "labels": labels}, "status": {"conditions": [*conditions]}})
    builder = CaseBuilder(nodes_of_pods={"n1": "n1.x"}, objects={"default/train": Job("default/train", ran=RAN)})
    builder.events.extend(kubernetes.marks_of(node, "n1", Clock(2026), RAN))
    return opened_case(joined("default/train", builder))


@pytest.mark.parametrize(
    ("kind", "status", "since", "suspects"),
    [
        ("AcceleratedHardwareReady", "False", "2026-03-01T08:00:00Z", ("n1",)),
        ("AcceleratedHardwareReady", "True", "2026-03-01T08:00:00Z", ()),
        ("AcceleratedHardwareReady", "False", "2026-02-01T08:00:00Z", ()),  # these may outlive their fault
        ("AcceleratedHardwareReady", "False", "2026-03-01T09:00:00Z", ()),
        ("XIDErrors", "True", "2026-03-01T08:00:00Z", ("n1",)),
        ("EtcdIsVoter", "True", "2026-03-01T08:00:00Z", ()),
        ("Ready", "Unknown", "2026-03-01T08:00:00Z", ("n1",)),
        ("Ready", "True", "2026-03-01T08:00:00Z", ()),
    ],
)
def test_a_node_that_its_monitors_say_is_ill_is_to_be_tested(
    kind: str, status: str, since: str, suspects: tuple[str, ...]
) -> None:
    case = _marked({}, {"type": kind, "status": status, "lastTransitionTime": since, **NVIDIA_79})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), suspects)
    assert DRAIN not in case.advice.nodes.values()


@pytest.mark.parametrize(("health", "suspects"), [("UnschedulablePendingReplacement", ("n1",)), ("Schedulable", ())])
def test_a_node_that_hyperpod_replaces_is_to_be_tested(health: str, suspects: tuple[str, ...]) -> None:
    of = "sagemaker.amazonaws.com/"
    case = _marked({f"{of}node-health-status": health, f"{of}fault-types": "XidHardwareFailure"})
    assert (case.verdict.cause, case.verdict.suspects) == ("unknown", suspects)
    assert ("XidHardwareFailure" in case.verdict.why) is bool(suspects)


def test_how_a_container_ended_before_hides_no_exception_of_a_rank(tmp_path: Path) -> None:
    told = "Name:             llama-0\nNamespace:        ml\n    Last State: Terminated\n      Reason:   OOMKilled\n"
    verdict = case_of(tmp_path, {"pods.txt": told, "rank_0.log": "[rank0]: KeyError: 'image'\n"}).verdict
    assert (verdict.cause, "the job's own code raised an exception" in verdict.why) == ("unknown", True)
