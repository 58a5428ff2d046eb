"""The suite's inputs from others, each opened as in a run: what it may refuse, and with which errors."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.accept import journal
from clusterproof.plugins.accept.plan import plan_of
from clusterproof.plugins.agent import sending
from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.benchmarks.pairwise.journal import JournalError
from clusterproof.plugins.benchmarks.pairwise.journal import read as read_journal
from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.case import CaseError
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.folder import collect
from clusterproof.plugins.case.redaction import redacted
from clusterproof.plugins.case.report import as_record, markdown, text
from clusterproof.plugins.command_line.init import init
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.evidence import EvidenceError, NodeEvidence, load
from clusterproof.plugins.evidence.recording import read_cluster, read_control_plane
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.policy import read_policy
from clusterproof.plugins.suite.training_run import RunHeader
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.transport import Answer
from clusterproof.plugins.transport.gather import replay
from clusterproof.plugins.watch.updates import LinesLost, NotUnderstood, UpdateStream
from clusterproof.reports.history import HistoryError, PastRun
from clusterproof.reports.history.command import history
from clusterproof.reports.history.store import write_run
from tests.builders.evaluated import results
from tests.fuzz import seeds
from tests.fuzz.seeds import NONCE, Seeds
from tests.training_run.builders import verdicts


@dataclass(frozen=True)
class Input:
    """How a file is opened: its folder and its name there. `refuses` are the exceptions allowed."""

    name: str
    open: Callable[[Path, str], object]
    refuses: tuple[type[Exception], ...] = (ClusterproofError,)

    @property
    def seeds(self) -> Seeds:
        """Valid files that the fuzzer alters."""
        return seeds.ALL[self.name]()


def _frames(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    if name == "stream":
        for _ in UpdateStream(NONCE).updates(data):
            pass
        return
    if name == "packed":
        data = "\n".join([f"{NONCE}:begin.", *sending.lines(zlib.compress(data), NONCE)]).encode()
    decode("gpu001", Answer(data), NONCE)


def _evidence(folder: Path, name: str) -> None:
    _evaluated(load((folder / name).read_bytes()))


def _evaluated(evidence: NodeEvidence) -> None:
    """Every check's result on it, and the reports on that."""
    for result in results(evidence).values():
        json.dumps(result.to_json())


def _captures(folder: Path, _name: str) -> None:
    cluster = resolve(f"capture:{folder}")
    for node in read_capture(folder, cluster, ["nvml", "kernel_log"]):
        _evaluated(node.evidence)


def _runs(folder: Path, name: str) -> None:
    run = read_run([str(folder / name)])
    verdicts(run)
    RunHeader(run).pytest_report_header()


def _recordings(folder: Path, name: str) -> None:
    for seed, data in seeds.of_recordings().items():
        if seed != name:
            (folder / seed).parent.mkdir(exist_ok=True)
            (folder / seed).write_bytes(data)
    cluster = read_cluster(folder)
    for evidence in replay(folder, cluster).values():
        _evaluated(evidence)
    read_control_plane(folder, cluster.name)
    read_journal(folder / "pairwise.jsonl")


def _policy(folder: Path, name: str) -> None:
    if name == "cluster.toml":
        for key in ("id_ed25519", "known_hosts"):
            (folder / key).touch()
        resolve(str(folder / name))
    else:
        _evaluated_by(folder / name)


def _evaluated_by(policy: Path) -> None:
    results(load((DEMO / "nodes" / "gpu001.json").read_bytes()), policy=read_policy(policy))


def _history(folder: Path, name: str) -> None:
    history(["--history", str(folder / name)])
    write_run(folder / name, PastRun("small", 1_800_000_000.0, 1_800_000_001.0), [])


def _cases(folder: Path, name: str) -> None:
    for seed, data in seeds.of_cases().items():
        if seed != name and name in seeds.of_cases():
            (folder / seed).write_bytes(data)
    collected = collect(folder)
    json.dumps(as_record(opened_case(redacted(collected))))
    case = opened_case(collected)
    f"{text(case)}{markdown(case)}{json.dumps(as_record(case))}".encode()


def _settings_of_nhc(folder: Path, name: str) -> None:
    code, _ = init([str(folder / "site"), "--from-nhc", str(folder / name)])
    if code == 0:
        read_policy(folder / "site" / "clusterproof.toml")


def _acceptances(folder: Path, name: str) -> None:
    if name == journal.FILE:
        journal.read(folder, "small", seeds.PLAN)
    else:
        nodes = (Target("gpu001", instance_type="p5.48xlarge"), Target("gpu002", instance_type="p5.48xlarge"))
        f"{plan_of(folder / name, Cluster('small', 'ssh', nodes)).digest}".encode()


INPUTS = {
    source.name: source
    for source in (
        Input("frames", _frames, (NotUnderstood, LinesLost)),
        Input("evidence", _evidence, (EvidenceError,)),
        Input("captures", _captures, (InventoryError,)),
        Input("runs", _runs, (RunError,)),
        Input("recordings", _recordings, (InventoryError, JournalError)),
        Input("policy", _policy, (InventoryError,)),
        Input("history", _history, (HistoryError,)),
        Input("cases", _cases, (CaseError,)),
        Input("nhc", _settings_of_nhc, ()),
        Input("acceptances", _acceptances, (InventoryError, journal.JournalError)),
    )
}
