"""A watch over testbed nodes with real sshds, and its reports."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.watch import Change, ChangeKind
from clusterproof.plugins.watch.controller import Controller, WatchSettings
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from clusterproof.plugins.watch.watch import Watch
from tests.testbed.cluster import Testbed
from tests.testbed.node import Node
from tests.watch.conditions import TIMEOUT_S, until

EVERY_S = 1.0


@dataclass
class Running(ABC):
    """A running watch."""

    said: list[Change] = field(default_factory=list)
    own: list[str] = field(default_factory=list)  # its messages about itself

    def until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait for a condition."""
        until(is_so, lambda: f"{what} did not come: {self.said[-5:]}")

    @abstractmethod
    def samples(self, node: str) -> int:
        """The number of samples that a node has sent."""

    def until_sampled(self, *nodes: str, more: int = 3) -> None:
        for node in nodes:
            wanted = self.samples(node) + more
            self.until(lambda node=node, wanted=wanted: self.samples(node) >= wanted, f"samples of {node}")  # type: ignore[misc]

    def of(self, rule: str, node: str = "") -> list[Change]:
        return [change for change in list(self.said) if change.key.rule == rule and node in ("", change.key.node)]

    def until_said(self, rule: str, kind: ChangeKind = ChangeKind.OPENED, node: str = "") -> Change:
        self.until(lambda: any(change.kind is kind for change in self.of(rule, node)), f"{rule} {kind.value}")
        return next(change for change in self.of(rule, node) if change.kind is kind)


@dataclass
class RunningHere(Running):
    """One in this process."""

    controller: Controller = field(kw_only=True)

    def samples(self, node: str) -> int:
        return self.controller.watch._nodes[node].ticks


@dataclass
class Watched(Running):
    """One over a testbed."""

    bed: Testbed = field(kw_only=True)


@dataclass
class WatchedHere(RunningHere, Watched):
    """One over a testbed, in this process."""


@contextmanager
def watched(
    bed: Testbed, monkeypatch: pytest.MonkeyPatch, record: Path | None = None, *, every_s: float = EVERY_S
) -> Iterator[WatchedHere]:
    """Watch all nodes of the testbed during the block."""
    monkeypatch.setenv("HOME", str(bed.home))
    cluster = Cluster("bed", "ssh", tuple(Target(name) for name in bed.addresses))
    settings = WatchSettings(
        SamplerOptions(every_s), Limits(connect_s=5.0, answer_s=60.0), ProbeOptions(collector_s=10.0)
    )
    with watching(cluster, settings, record, bed.joined) as running:
        yield WatchedHere(running.said, running.own, bed=bed, controller=running.controller)


@contextmanager
def watching(
    cluster: Cluster,
    settings: WatchSettings,
    record: Path | None = None,
    joined: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[RunningHere]:
    """Watch a cluster during the block; `joined` puts a thread on its network."""
    every_s = settings.sampling.every_s
    names = [target.name for target in cluster.targets]
    watch = Watch(Evaluator(cluster, NO_POLICY), every_s, names, time.monotonic())
    changes: list[Change] = []
    own: list[str] = []
    recording = Recording(record, every_s, own.append) if record else None
    controller = Controller(cluster, watch, settings, recording, changes.extend)
    with joined():
        thread = threading.Thread(target=controller.run, name="watch")
        thread.start()
    try:
        yield RunningHere(changes, own, controller=controller)
    finally:
        controller.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def log(node: Node, text: str, at_s: float = 90_000.0, level: int = 3) -> None:
    """A node's kernel logs this."""
    file = node.root / "dev" / "kmsg"
    number = file.read_text().count(",-;")
    with file.open("a") as opened:
        opened.write(f"{level},{number},{int(at_s * 1e6)},-;{text}\n")


def samplers(node: Node) -> Sequence[str]:
    """Sampler processes left on a node, by command line."""
    return [
        text
        for process in Path(f"/proc/{node.pid}/root/proc").glob("[0-9]*/cmdline")
        if "begin." in (text := _text(process))
    ]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
