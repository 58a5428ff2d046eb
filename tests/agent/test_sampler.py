"""The program that stays on a node: what it samples, how little a hang costs, and how it ends."""

from __future__ import annotations

import ast
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest

from clusterproof.plugins.agent.payload import cursor_word, new_nonce, sampler, started_by_shell
from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.transport.ssm import LONGEST_PROGRAM
from clusterproof.plugins.watch.updates import Hello, LogLine, LogUpdate, Tick, Update, UpdateStream
from tests.testbed.needs import needs_frozen, needs_nodes
from tests.testbed.node import (
    Node,
    NodeImage,
    entered,
    healthy_cpu,
    healthy_p5,
    with_kernel_line,
    with_nvml,
    with_stuck_nvml,
)
from tests.testbed.nvml.values import VALUES_PATH, answer_now
from tests.watch.watched_bed import log, samplers

pytestmark = needs_nodes
TIMEOUT_S = 600.0
BOOT_ID = "3f1c9a52-6d0e-4b77-9c1d-5a2e8f704b16"  # the testbed's


@dataclass
class Sampling:
    """A sampler running on a node, and what it has sent."""

    node: Node
    process: subprocess.Popen[bytes]
    updates: list[Update] = field(default_factory=list)

    def until(self, is_so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what} did not come: {self.updates[-2:]}"
            time.sleep(0.02)

    @property
    def ticks(self) -> list[Tick]:
        return [update for update in list(self.updates) if isinstance(update, Tick)]

    def until_ticks(self, count: int) -> list[Tick]:
        self.until(lambda: len(self.ticks) >= count, f"{count} ticks")
        return self.ticks


@contextmanager
def sampling(image: NodeImage, every_s: float = 0.5, cursor: tuple[str, int, float] = NO_CURSOR) -> Iterator[Sampling]:
    """Run a sampler on a node with this image; its input stays open until the block ends."""
    nonce = new_nonce()
    program = started_by_shell(sampler(every_s, "/"), nonce, sudo=False, on_stdin=True, word=cursor_word(cursor))
    pipe = subprocess.PIPE
    with entered(image) as node:
        process = node.start(["/bin/sh", "-c", program.command], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        assert process.stdin
        assert process.stdout
        process.stdin.write(program.stdin)
        process.stdin.flush()
        running = Sampling(node, process)

        def read(stream: UpdateStream = UpdateStream(nonce)) -> None:  # noqa: B008 - one for the one call
            assert process.stdout
            while piece := process.stdout.read1(65536):  # type: ignore[attr-defined]
                running.updates += stream.updates(piece)

        reader = Thread(target=read)
        reader.start()
        try:
            yield running
        finally:
            process.stdin.close()
            reader.join(TIMEOUT_S)
            process.stdout.close()


def test_it_is_no_longer_than_a_probe_for_systems_manager() -> None:
    program = started_by_shell(
        sampler(10.0, "/"), new_nonce(), sudo=True, on_stdin=True, word=cursor_word(("x" * 36, 10**9, 1e9))
    )
    assert len(program.command) + len(program.stdin) < LONGEST_PROGRAM


def test_it_samples_gpus_host_and_network_at_each_tick() -> None:
    image = with_nvml(healthy_p5(), 3, utilization_percent=97, memory_used_mib=70_000, temperature_c=61)
    with sampling(image) as running:
        ticks = running.until_ticks(4)
    assert isinstance(running.updates[0], Hello)
    assert running.updates[0].no_log == ""
    assert [len(tick.gpu) for tick in ticks] == [8] * len(ticks)
    assert ticks[-1].gpu[3][0] == 97
    assert (ticks[-1].gpu[3][5], ticks[-1].gpu[3][8]) == (70_000, 61)
    first = ticks[0].gpus
    assert first is not None
    assert (len(first), first[0].memory_mib, first[0].power_limit_w) == (8, 81_559, 700)
    assert ticks[1].gpus is None
    assert all(0 <= (tick.host[0] or 0) <= 100 for tick in ticks)
    assert ticks[0].late == {"lustre": (0.0, "no stats of a Lustre client")}
    assert ticks[1].late == {}


def test_facts_are_sent_once_and_again_when_they_change() -> None:
    with sampling(healthy_p5()) as running:
        running.until(lambda: len({gpu for tick in running.ticks for gpu in tick.facts}) == 8, "facts of all GPUs")
        seen = len(running.until_ticks(len(running.ticks) + 10))
        assert all(tick.facts == {} for tick in running.ticks[seen - 8 : seen])


def test_a_node_without_gpus_reports_that_once() -> None:
    with sampling(healthy_cpu()) as running:
        ticks = running.until_ticks(3)
    assert ticks[0].late["gpu"][1].startswith("no libnvidia-ml.so.1")
    assert [tick.gpu for tick in ticks] == [()] * len(ticks)
    assert "gpu" not in ticks[-1].late


def test_lines_of_the_kernel_log_come_as_they_are_logged_and_a_flood_is_counted() -> None:
    with sampling(healthy_p5()) as running:
        running.until_ticks(1)
        log(running.node, "usb 1-1: new high-speed USB device")
        log(running.node, "NVRM: Xid (PCI:0000:53:00): 79, forged", level=14)  # as a program writes it to /dev/kmsg
        for _ in range(50):
            log(running.node, "NVRM: Xid (PCI:0000:53:00): 95, pid='<unknown>', name=<unknown>, Uncontained")

        def lines() -> list[LogLine]:
            return [line for update in list(running.updates) if isinstance(update, LogUpdate) for line in update.lines]

        running.until(lambda: len(lines()) >= 8, "the lines")
        running.until_ticks(len(running.ticks) + 4)
        assert {line.text[:38] for line in lines()} == {"NVRM: Xid (PCI:0000:53:00): 95, pid='<"}
        assert len(lines()) == 8


@pytest.mark.parametrize(
    ("cursor", "codes"),
    [(("of another boot", 7, 9.0), []), ((BOOT_ID, 0, 0.0), [79]), ((BOOT_ID, 10_000, 9.0), [])],
    ids=["a visit has what was before", "all of the boot", "only what is new"],
)
def test_the_kernel_log_is_followed_from_where_it_is_known(cursor: tuple[str, int, float], codes: list[int]) -> None:
    image = with_kernel_line(healthy_p5(), "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', it broke")
    with sampling(image, cursor=cursor) as running:
        running.until_ticks(2)
        texts = [
            line.text for update in list(running.updates) if isinstance(update, LogUpdate) for line in update.lines
        ]
        assert [int(text.split(",")[0].split()[-1]) for text in texts if "Xid" in text] == codes


def test_nothing_is_left_once_its_input_ends_and_nothing_was_written() -> None:
    with sampling(healthy_p5()) as running:
        before = running.node.written()
        running.until_ticks(3)
        assert samplers(running.node)
        assert running.process.stdin
        running.process.stdin.close()
        running.until(lambda: not samplers(running.node), "its end")
        assert running.node.written() == before


def test_nothing_is_left_when_it_is_killed() -> None:
    with sampling(healthy_p5()) as running:
        running.until_ticks(2)
        running.node.run(["/bin/sh", "-c", "kill -9 $(pgrep -o -f '^[^ ]*python3[^ ]* .* begin[.]')"])
        running.until(lambda: not samplers(running.node), "the end of its sources")
        assert not samplers(running.node)


@needs_frozen
def test_a_driver_that_hangs_costs_its_own_values_and_is_said() -> None:
    with sampling(with_stuck_nvml(healthy_p5(), 2)) as running:
        running.until(lambda: any("gpu" in tick.late for tick in running.ticks), "that it is late")
        count = len(running.ticks)
        tick = running.until_ticks(count + 3)[-1]
        assert tick.gpu == ()
        assert tick.late["gpu"][0] > 0
        assert tick.host[0] is not None


def test_a_driver_that_hangs_and_comes_back_is_sampled_again() -> None:
    image = with_nvml(healthy_p5(), 0, hang="memory_info")
    with sampling(image) as running:
        running.until(lambda: any("gpu" in tick.late for tick in running.ticks), "that it is late")
        values = running.node.root / VALUES_PATH.lstrip("/")
        values.write_text(values.read_text().replace("hang = memory_info", ""))
        running.node.run(["/bin/sh", "-c", "kill -9 $(pgrep -f '^[^ ]*python3[^ ]* .* begin[.]' | sed -n 2p)"])
        running.until(lambda: running.ticks and running.ticks[-1].gpu, "samples of the GPUs")
        assert "gpu" not in running.ticks[-1].late


@pytest.mark.parametrize("garbage", [b"\n" * 100, b"x" * 10_000])
def test_what_comes_over_its_input_is_a_sign_of_life_and_no_command(garbage: bytes) -> None:
    with sampling(healthy_cpu()) as running:
        running.until_ticks(1)
        assert running.process.stdin
        running.process.stdin.write(garbage)
        running.process.stdin.flush()
        running.until_ticks(len(running.ticks) + 3)
        assert json.dumps(running.ticks[-1].now)


def test_its_text_is_made_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sampler(10.0, "/")

    def parse(*_: object, **__: object) -> None:
        raise AssertionError("a program was parsed again; expected that only its last argument differs")

    monkeypatch.setattr(ast, "parse", parse)  # it also fails where many threads do it at once
    assert sampler(10.0, "/") is first


def test_a_gpu_that_is_lost_is_reported_and_that_it_is_back() -> None:
    with sampling(with_nvml(healthy_p5(), 3)) as running:
        healthy = (running.node.root / VALUES_PATH.lstrip("/")).read_text()

        def lost() -> list[Any]:
            return [tick.facts[3]["lost"] for tick in running.ticks if "lost" in tick.facts.get(3, {})]

        running.until(lambda: lost() == [None], "facts of the GPU")
        answer_now(running.node.root, f"{healthy.rstrip()}\n[gpu 3]\nlost_after = 0\n")
        running.until(lambda: len(lost()) == 2, "that it is lost")
        assert lost()[1]["error"] == "GPU_IS_LOST"
        answer_now(running.node.root, healthy)
        running.until(lambda: len(lost()) == 3, "that it is back")
        assert lost()[2] is None


def test_gpm_gives_means_since_the_sample_before_of_the_gpus_that_have_it() -> None:
    metrics = {"gpm 2": 91.26, "gpm 5": 40, "gpm 20": 1000, "gpm 21": 500, "gpm 60": 20_000, "gpm 61": 20_000}
    with sampling(with_nvml(healthy_p5(), 3, gpm=True, **metrics)) as running:
        running.until(lambda: len([tick for tick in running.ticks if tick.gpu]) > 8, "samples of the GPUs")
    ticks = [tick for tick in running.ticks if tick.gpu]
    assert ticks[0].gpu[3][1:5] == (None,) * 4
    assert {tick.gpu[3][1:5] for tick in ticks[1:]} == {(91.3, 40.0, 41_943, 1_573)}
    assert {tick.gpu[0][1:5] for tick in ticks} == {(None,) * 4}


def test_a_metric_that_a_gpu_does_not_report_costs_itself_alone_and_a_failing_gpu_leaves_no_samples() -> None:
    with sampling(with_nvml(healthy_p5(), 3, gpm=True, **{"gpm 2": 50, "gpm 61": "error NOT_SUPPORTED"})) as running:
        healthy = (running.node.root / VALUES_PATH.lstrip("/")).read_text()

        def last() -> tuple[float | None, ...]:
            return next((tick.gpu[3] for tick in reversed(running.ticks) if tick.gpu), (0,) * 5)

        running.until(lambda: last()[1] == 50, "values of GPM")
        assert last()[2:5] == (None,) * 3
        for _ in range(3):
            answer_now(running.node.root, healthy.replace("gpm = true", "gpm = false"))
            running.until(lambda: last()[1] is None, "its end")
            answer_now(running.node.root, healthy)
            running.until(lambda: last()[1] == 50, "values of GPM again")


def test_why_clocks_are_slow_is_told_when_it_begins_and_when_it_ends_but_for_the_power_cap() -> None:
    with sampling(with_nvml(healthy_p5(), 3)) as running:
        healthy = (running.node.root / VALUES_PATH.lstrip("/")).read_text()

        def reported() -> list[Any]:
            facts = [tick.facts.get(3, {}) for tick in running.ticks]
            return [fact["clocks_event_reasons"] for fact in facts if "clocks_event_reasons" in fact]

        for reasons, expected in (("0x4", []), ("0x24", [0x24]), ("0x4", [0x24, 0x4]), ("0x0", [0x24, 0x4])):
            answer_now(running.node.root, f"{healthy.rstrip()}\n[gpu 3]\nclocks_event_reasons = {reasons}\n")
            running.until(lambda expected=expected: reported() == expected, f"{reasons}")  # type: ignore[misc]
            running.until_ticks(len(running.ticks) + 3)
            assert reported() == expected
