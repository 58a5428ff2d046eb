"""What every meter has: command lines for the ends of a pair, and a reader of what they print."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.evidence.pairs import Reading


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """What a user may choose of a meter; 0 and empty mean the meter's own choice."""

    collective: str = "all_reduce"  # of nccl-tests and nccom-test
    size_bytes: int = 0
    ranks_per_node: int = 0
    program: str = ""  # a path on the nodes, where the meter does not find its program itself
    options: str = ""  # further words for its command line
    environment: Mapping[str, str] = field(default_factory=dict)  # for the program, on the nodes


@dataclass(frozen=True, slots=True)
class Output:
    """What one end printed (standard output and error as they came, bounded), and how it ended.

    `exit` is None where it did not end in its time. `sent_bytes` is how much each network device of that end sent
    meanwhile, by the device's name ("efa:rdmap79s0", "net:eth0"); empty where nobody could look.
    """

    text: str
    exit: int | None
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Meter:
    """One program.

    A collective one has `ranks`: the shell command of every rank, which a launcher starts on both nodes; where it
    `starts_ranks` itself, only the first of them does anything. One of two ends has `server` and `client` (shell
    commands, from the port, and from the server's address and the port); the server serves one client and ends. `read`
    takes the ranks' merged output, or the client's and then the server's. `command` is what a person types for it, from
    the launcher's words for ranks and the names of both nodes; `by_hand` likewise where no settings are known. Some
    of two ends start a rank for each of their GPUs.
    """

    name: str
    read: Callable[[MeterSettings, tuple[Output, ...]], Reading]
    ranks: Callable[[MeterSettings], str] | None = None
    server: Callable[[MeterSettings, int], str] | None = None
    client: Callable[[MeterSettings, str, int], str] | None = None
    starts_ranks: bool = False
    command: Callable[[MeterSettings, str, str, str], str] | None = None
    by_hand: Callable[[str, str, str], str] | None = None
    has_a_rank_for_each_gpu: bool = False

    @property
    def is_collective(self) -> bool:
        """Whether a launcher of ranks starts it on both nodes at once."""
        return self.ranks is not None
