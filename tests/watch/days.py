"""Days of a node in training, as its sampler sends them, without waiting; and faults to inject into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, load
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.training_run.sample_columns import SampledGpu
from clusterproof.plugins.watch import Change
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.updates import Hello, LogLine, LogUpdate, Tick
from clusterproof.plugins.watch.watch import Watch
from tests.builders.wheel import ROOT
from tests.testbed.healthy import BOOT_ID

EVERY_S = 10.0
NODE = "gpu001"
BEGAN_S, UP_S = 1_763_700_000.0, 90_000.0
GPUS = tuple(SampledGpu(f"GPU-{index}", 81_559.0, 700.0) for index in range(8))
POWER_CAP, NOTHING, BRAKE = 0x4, 0x0, 0x80


def evidence(**changes: Any) -> NodeEvidence:
    """The demo's healthy node's report; `changes` apply to collectors' values, by name."""
    data = json.loads((ROOT / "fixtures/demo/nodes/gpu001.json").read_text(encoding="utf-8"))
    for collector, change in changes.items():
        data["collectors"][collector]["value"].update(change)
    return load(json.dumps(data))


@dataclass
class Day:
    """A watch of one node and what it has reported, moment by moment."""

    watch: Watch = field(init=False)
    said: list[Change] = field(default_factory=list)
    now: float = 0.0
    stepped_s: float = 0.0
    random: Random = field(default_factory=lambda: Random(3))
    before: tuple[Change, ...] = ()  # reported by an earlier watch, which this one continues
    boot_id: str = BOOT_ID

    def __post_init__(self) -> None:
        cluster = Cluster("day", "ssh", (Target(NODE, instance_type="p5.48xlarge"),))
        self.watch = Watch(Evaluator(cluster, NO_POLICY), EVERY_S, [NODE], 0.0)
        self.watch.resume(self.before, 0.0)
        if not self.before:
            self.visit()
        self.hello(self.boot_id)

    def visit(self, **changes: Any) -> None:
        """Gather all evidence."""
        reported = evidence(**{"boot": {"boot_id": self.boot_id}, **changes})
        self.said += self.watch.evidence({NODE: reported}, self.now)

    def hello(self, boot_id: str = BOOT_ID) -> None:
        """The sampler starts."""
        self.boot_id = boot_id
        self.said += self.watch.update(NODE, Hello(boot_id, BEGAN_S + self.now, UP_S + self.now), self.now)

    def tick(
        self, facts: Mapping[int, Mapping[str, Any]] | None = None, late: float = 0.0, **reported: Mapping[str, Any]
    ) -> None:
        """Ten seconds later; these collectors report new values."""
        self.now += EVERY_S
        moment = BEGAN_S + self.now + self.stepped_s, UP_S + self.now
        gone = {"gpu": (late, "")} if late else {}
        tick = Tick(*moment, () if late else self._gpus(), (12.0,) * 15, GPUS, facts or {}, gone, reported)
        self.said += self.watch.update(NODE, tick, self.now)
        self.said += self.watch.check_silence(self.now)

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.tick()

    def silence(self, seconds: float) -> None:
        """The node sends nothing for this long."""
        for _ in range(int(seconds // EVERY_S)):
            self.now += EVERY_S
            self.said += self.watch.check_silence(self.now)

    def log(self, text: str, times: int = 1) -> None:
        """The kernel logs this."""
        lines = tuple(LogLine(1000 + int(self.now) + at, UP_S + self.now, text) for at in range(times))
        self.said += self.watch.update(NODE, LogUpdate(UP_S + self.now, lines), self.now)

    def of(self, rule: str) -> list[str]:
        """The changes reported by a rule."""
        return [change.kind.value for change in self.said if change.key.rule == rule]

    def _gpus(self) -> tuple[tuple[float | None, ...], ...]:
        """Training, except for checkpoints of a minute every half hour, and evaluations of five every three hours."""
        pauses = self.now % 1800 < 60 or self.now % 10_800 < 300
        use = 0.0 if pauses else self.random.gauss(96, 2)
        values = (use, use / 2, use / 3, 100 * use, use, 70_000.0, 1_700.0, 6 * use, 60.0, use / 2, 0.0, 0.0, 3.0, 0.0)
        return (values,) * len(GPUS)


def healthy(day: Day, ticks: int) -> Iterator[int]:
    """Ticks of a healthy node: clocks that vary with the power cap, an hourly power brake, harmless log lines."""
    for number in range(ticks):
        facts: dict[int, dict[str, Any]] = {}
        if number % 30 < 2:
            facts[number % 8] = {"clocks_event_reasons": (POWER_CAP, NOTHING)[number % 2]}
        if number % 360 == 17:
            facts[3] = {"clocks_event_reasons": BRAKE, "slowdown": slowed(day.now, 0.0)}
        elif number % 360 == 18:
            facts[3] = {"clocks_event_reasons": NOTHING, "slowdown": None}
        day.tick(facts)
        if number % 100 == 50:
            day.log("nvidia-nvlink: Nvlink Core is being initialized, major device number 234")
        yield number


def slowed(now: float, share: float) -> list[dict[str, Any]]:
    """The slowdown counters at two moments, between which they ran for that share of the time."""
    fields = (75, 252, 253, 270, 271)
    return [
        {"at_s": now + at, "counters_ns": {str(name): int(share * at * 1e9) for name in fields}}
        for at in (0.0, EVERY_S)
    ]


Act = Callable[[Day], object]


@dataclass(frozen=True)
class Fault:
    """What happens, which rule reports it, and what ends it."""

    name: str
    begin: Act
    rule: str
    verdict: str
    words: str
    end: Act


def again(**facts: Any) -> Act:
    """GPU 3 reports these facts."""
    return lambda day: day.tick({3: facts})


def lasting(**facts: Any) -> Act:
    """… at each of five ticks."""

    def act(day: Day) -> None:
        for _ in range(5):
            day.tick({3: {**facts, "slowdown": slowed(day.now, 1.0)}})

    return act


def rebooted(day: Day) -> None:
    """It has rebooted, and all evidence was gathered anew."""
    day.hello("boot-2")
    day.visit()


def ended(day: Day) -> None:
    """The hardware no longer throttles it, for more than a minute."""
    day.tick({3: {"clocks_event_reasons": NOTHING, "slowdown": None}})
    day.ticks(6)


LOST = {"error": "GPU_IS_LOST", "text": "GPU is lost"}
NO_ERRORS = {"ecc_uncorrected_dram": 0, "ecc_uncorrected_total": 0}
FAULTS = (
    Fault(
        "a GPU falls off the bus",
        lambda day: day.log("NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', GPU has fallen off the bus.", 20),
        "gpu.no_xid",
        "fail",
        "Xid 79 (GPU has fallen off the bus)",
        rebooted,
    ),
    Fault(
        "a page is retired after an ECC error",
        again(ecc_uncorrected_dram=14, ecc_uncorrected_total=14),
        "gpu.no_uncorrected_ecc",
        "fail",
        "uncorrected ECC errors: 14 in DRAM",
        again(**NO_ERRORS),
    ),
    Fault("a GPU is lost", again(lost=LOST), "gpu.gpu_answers", "fail", "GPU_IS_LOST", lambda day: day.visit()),
    Fault(
        "row remapping fails",
        again(remap_failed=True),
        "gpu.row_remap",
        "fail",
        "remap",
        again(remap_failed=False),
    ),
    Fault(
        "an NVLink goes down",
        again(nvlinks=[False] + [True] * 17),
        "gpu.nvlink_active",
        "fail",
        "NVLink 0 inactive",
        again(nvlinks=[True] * 18),
    ),
    Fault(
        "the power brake holds a GPU down",
        lasting(clocks_event_reasons=BRAKE),
        "gpu.no_throttle",
        "fail",
        "slowed down",
        ended,
    ),
    Fault(
        "the kernel ends a job for want of memory",
        lambda day: day.log("Out of memory: Killed process 4242 (python3) total-vm:9437184kB, anon-rss:8388608kB"),
        "host.no_oom_kill",
        "fail",
        "python3",
        rebooted,
    ),
    Fault(
        "a CPU core locks up",
        lambda day: day.log("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4242]"),
        "host.lockups",
        "concern",
        "lockup",
        rebooted,
    ),
    Fault(
        "the driver hangs",
        lambda day: [day.tick(late=10.0 * at) for at in range(1, 6)],
        "watch.source",
        "fail",
        "the NVIDIA driver has not answered for",
        lambda day: day.ticks(6),
    ),
    Fault(
        "the node falls silent",
        lambda day: day.silence(60),
        "watch.silent",
        "incomplete",
        "no sample for 30 s",
        lambda day: day.tick(),
    ),
)
