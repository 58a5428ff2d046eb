"""How `clusterproof watch` ends over real sshds: interrupted or killed, it leaves nothing on nodes and can continue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from clusterproof.plugins.training_run.sample_columns import SUFFIX
from clusterproof.plugins.watch.changes_file import CHANGES_FILE
from tests.builders.wheel import ROOT
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5
from tests.watch.conditions import TIMEOUT_S, until
from tests.watch.watched_bed import log, samplers

pytestmark = needs_cluster

MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
NAMES = ("gpu001", "gpu002")
XID = "NVRM: Xid (PCI:0000:64:00): {}, pid='<unknown>', name=<unknown>, it broke"


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with testbed({name: healthy_p5(name) for name in NAMES}) as made:
        yield made


@dataclass
class Running:
    """The command as a user runs it, and its output."""

    process: subprocess.Popen[bytes]
    out: Path

    @property
    def text(self) -> str:
        return self.out.read_text(encoding="utf-8")


@contextmanager
def running(bed: Testbed, record: Path, out: Path) -> Iterator[Running]:
    arguments = [sys.executable, "-c", MAIN, "watch", "--cluster", f"ssh:{','.join(NAMES)}", "--every", "1"]
    command = bed.command([*arguments, "--record", str(record)])
    with out.open("wb") as file:
        environment = {**os.environ, "HOME": str(bed.home)}
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env=environment)
    try:
        yield Running(process, out)
    finally:
        process.kill()
        process.wait()


def nothing_is_left(bed: Testbed) -> bool:
    return not any(samplers(bed.nodes[name]) for name in NAMES)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_while_nodes_are_visited_it_leaves_nothing_running(
    bed: Testbed, tmp_path: Path, number: signal.Signals
) -> None:
    with running(bed, tmp_path / "kept", tmp_path / "out") as watch:
        until(lambda: all(samplers(bed.nodes[name]) for name in NAMES), lambda: watch.text)
        watch.process.send_signal(number)
        assert watch.process.wait(TIMEOUT_S) in (0, 10, -number)  # 10 if no node had answered yet
    until(lambda: nothing_is_left(bed))


def test_killed_and_begun_again_it_loses_nothing_and_repeats_nothing(bed: Testbed, tmp_path: Path) -> None:
    record = tmp_path / "kept"
    with running(bed, record, tmp_path / "first") as watch:
        until(lambda: len(list(record.glob(f"*{SUFFIX}"))) == 2, lambda: watch.text)
        log(bed.nodes["gpu001"], XID.format(79), time.clock_gettime(time.CLOCK_BOOTTIME))
        until(lambda: "Xid 79 (" in watch.text, lambda: watch.text)
        watch.process.send_signal(signal.SIGKILL)
        watch.process.wait()
    until(lambda: nothing_is_left(bed))
    log(bed.nodes["gpu002"], XID.format(95), time.clock_gettime(time.CLOCK_BOOTTIME))
    with running(bed, record, tmp_path / "second") as watch:
        until(lambda: "Xid 95 (" in watch.text, lambda: watch.text)
        until(lambda: all(samplers(bed.nodes[name]) for name in NAMES), lambda: watch.text)
        log(bed.nodes["gpu002"], XID.format(48), time.clock_gettime(time.CLOCK_BOOTTIME))
        until(lambda: "Xid 48 (" in watch.text, lambda: watch.text)
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(TIMEOUT_S) == 1, watch.text
        assert f"open from before, not reported again: 1 ({record}/{CHANGES_FILE})" in watch.text
        assert "Xid 79" not in watch.text
        assert "samples: 2 nodes, 2 with a fail" in watch.text
    until(lambda: nothing_is_left(bed))
    changes = [json.loads(line) for line in (record / CHANGES_FILE).read_text(encoding="utf-8").splitlines()]
    opened = [(change["node"], change["device"].rpartition(" ")[2]) for change in changes if change["kind"] == "opened"]
    assert opened == [("gpu001", "79"), ("gpu002", "95"), ("gpu002", "48")]
    samples = (record / f"gpu002{SUFFIX}").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(samples, read_across_frames=True).read().splitlines()
    gaps = [json.loads(line)["gap"]["why"] for line in lines if b'"gap"' in line]
    assert gaps == ["nobody watched"]
