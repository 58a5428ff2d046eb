"""What one run of a meter brought."""

from __future__ import annotations

from dataclasses import dataclass

APART = "the ranks did not find each other"
NOT_AT_FAULT = "by no fault of its own"
NOT_INSTALLED, NO_PROGRAM = "is not installed: looked", "is not a program here"


@dataclass(frozen=True, slots=True)
class Reading:
    """One run. `busbw_gb_per_s` (10^9 bytes a second) is None where the run failed, and `problem` then says why.

    `size_bytes` is the message's; `is_correct` is None where results were not compared with the right ones. `network`
    is what the run itself proves of the network that it used ("efa, 32 devices", "Socket", "eth0"), empty where it
    proves nothing. `culprit` is the node responsible for a failure, where the run says so.
    """

    busbw_gb_per_s: float | None = None
    algbw_gb_per_s: float | None = None
    time_us: float | None = None
    size_bytes: int = 0
    is_correct: bool | None = None
    network: str = ""
    problem: str = ""
    culprit: str = ""
    seconds: float = 0.0  # that the run took, its start included
    ranks: int = 0  # that took part, 0 where the run does not say
    hosts: tuple[
        str, ...
    ] = ()  # the names by which the run calls the nodes that took part; empty where it does not say
    command: str = ""  # with which a person measures this pair in the same way; empty in older recordings

    @property
    def is_without_program(self) -> bool:
        """Whether it failed because a node does not have the meter's program: that says nothing of its network."""
        return any(words in self.problem for words in (NOT_INSTALLED, NO_PROGRAM))

    @property
    def is_not_at_fault(self) -> bool:
        """Whether it failed because a node was not to be had just then: that says nothing of it either."""
        return NOT_AT_FAULT in self.problem

    @property
    def is_apart(self) -> bool:
        """Whether it failed because the ranks of one job did not become one: what to do, the launcher knows."""
        return APART in self.problem


MAX_GB_PER_S = 100_000.0  # no network and no NVLink domain comes near it


def is_believable(gb_per_s: float | None) -> bool:
    """Whether it can be a bandwidth at all."""
    return gb_per_s is not None and 0 < gb_per_s <= MAX_GB_PER_S
