"""An answer that a source gives after its tick was sent is not lost."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.agent.sampler import _Loop


class LateSource:
    """A source that answers only after its tick was sent."""

    name, words, pipe, grace_s, is_absent = "gpu", "", -1, 0.0, False

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}
        self.asked_at = 0

    def tick(self) -> None:
        self.asked_at += 1

    def late_s(self) -> float:
        return 0.0


class SentLines:
    """The lines that a sampler prints."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def send(self, update: dict[str, Any]) -> None:
        self.lines.append(update)


class NoLog:
    """A kernel log without lines."""

    why_not, is_device, file, boot_id, lost = "", False, -1, "", 0

    def lines(self) -> list[list[object]]:
        return []


def test_facts_that_come_after_their_tick_are_sent_with_the_next_one() -> None:
    source, stream = LateSource(), SentLines()
    loop = _Loop([source], NoLog(), 1.0, False, stream)  # type: ignore[list-item, arg-type]
    loop._tick()
    source.answer = {"values": [], "facts": {"nvml": {"3": {"ecc_uncorrected_dram": 14}}}}
    loop._tick()
    loop._tick()
    assert [line.get("facts") for line in stream.lines] == [None, {"nvml": {"3": {"ecc_uncorrected_dram": 14}}}, None]
