"""Breaks and mends nodes while everything between a watch and its receiver fails, and counts lost alerts.

The receiver is down, slow, or asks for a pause (429, Retry-After); the disk of --record is full, if this is root and
may mount a small one; the watch is killed at any moment and restarted. The last line is one JSON object: `alerts` that
were due (one for each break and mend), and three counts that must be 0. `lost`: an alert never arrived. `reordered`: a
node's alerts arrived in another order. `doubled_without_id`: an alert arrived twice with different ids.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from clusterproof.plugins.watch.changes_file import CHANGES_FILE, read_changes
from scripts.arguments import Arguments, count
from tests.watch.receiving import WebServer, web_server
from tests.watch.small_disk import small_disk

NAMES = tuple(f"gpu{number:03d}" for number in range(1, 41))
TIMEOUT_S = 120.0  # for all deliveries, once the failures have stopped
LOOK_S = 0.05
REPO = Path(__file__).parent.parent


class World:
    """What is broken now, and which alerts are due for each node."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.file, self._beside, self._random = folder / "broken.json", folder / "broken.new", random
        self.due: dict[str, list[str]] = {name: [] for name in NAMES}
        self.turn(())

    @property
    def alerts(self) -> int:
        """How many alerts were due."""
        return sum(map(len, self.due.values()))

    def turn(self, names: Sequence[str]) -> None:
        """Break those of these that work, and mend those that are broken."""
        for name in names:
            self.due[name].append("closed" if self.due[name][-1:] == ["opened"] else "opened")
        broken = [name for name, kinds in self.due.items() if kinds[-1:] == ["opened"]]
        self._beside.write_text(json.dumps(broken), encoding="utf-8")
        self._beside.replace(self.file)

    def turn_some(self, record: Path) -> None:
        """Change some things whose earlier changes the watch has recorded, as it only looks now and then."""
        ready = self._recorded(record)
        self.turn(self._random.sample(ready, min(len(ready), self._random.choice((1, 1, 2, 20)))))

    def is_recorded(self, record: Path) -> bool:
        """Whether the watch has recorded every change."""
        return len(self._recorded(record)) == len(NAMES)

    def _recorded(self, record: Path) -> list[str]:
        path = record / CHANGES_FILE
        seen = Counter(change.key.node for change in read_changes(path)) if path.exists() else Counter()
        return [name for name, kinds in self.due.items() if seen[name] == len(kinds)]


class WatchProcess:
    """The watch's process, killed and restarted."""

    def __init__(self, world: World, record: Path, out: Path, command: str) -> None:
        self._words = [sys.executable, "-m", "bench.alerting", ",".join(NAMES), str(world.file), str(record), command]
        self._out = out
        self.kills = -1
        self.again()

    def again(self) -> None:
        """Kill it at whatever point it is, and restart it."""
        self.end()
        self.kills += 1
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(self._words, stdout=out, stderr=out, cwd=REPO)

    def end(self) -> None:
        """Kill it."""
        if hasattr(self, "_process"):
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def outages(server: WebServer, random: Random) -> Iterator[str]:
    """The receiver's failures, one after another, without end."""
    while True:
        name = random.choice(("up", "down", "slow", "429"))
        server.status = {"down": 500, "429": 429}.get(name, 200)
        server.after = "1" if name == "429" else ""
        server.slow_s = random.uniform(0.2, 1.0) if name == "slow" else 0.0
        yield name


def judged(due: dict[str, list[str]], taken: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The counts that must be 0, for a receiver that drops ids that it has already seen."""
    came: dict[str, list[str]] = {name: [] for name in due}
    firsts: dict[str, Mapping[str, Any]] = {}
    for notification in taken:
        firsts.setdefault(str(notification["id"]), notification)
    for notification in firsts.values():
        for finding in notification["findings"]:
            came[finding["node"]].append(str(notification["kind"]))
    verdict = {"lost": 0, "reordered": 0, "doubled_without_id": 0}
    for name, kinds in due.items():
        wanted, delivered = Counter(kinds), Counter(came[name])
        verdict["lost"] += (wanted - delivered).total()
        verdict["doubled_without_id"] += (delivered - wanted).total()
        verdict["reordered"] += wanted == delivered and kinds != came[name]
    return verdict


@contextmanager
def disk(under: Path) -> Iterator[tuple[Path, Callable[[], object], Callable[[], object]]]:
    """The folder that the watch records to, and functions that fill and free its disk (no-ops without a mount)."""
    if os.geteuid() == 0:
        with small_disk(under, kib=2048) as small:
            yield small
    else:
        print("full disk: skipped; it needs root, to mount a small one")
        yield under / "kept", lambda: None, lambda: None


def chaos(seconds: float, seed: int) -> dict[str, int]:
    """Run for this many seconds; returns what happened to the alerts."""
    random = Random(seed)
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, web_server() as server, disk(Path(name)) as (record, fill, free):
        world = World(Path(name), random)
        watch = WatchProcess(world, record, Path(name, "out"), shlex.join(server.program))
        try:
            of_server, until = outages(server, random), time.monotonic() + seconds
            while time.monotonic() < until:
                seen[next(of_server)] += 1
                is_full = os.geteuid() == 0 and random.random() < 0.3
                if is_full:
                    fill()
                    seen["full disk"] += 1
                for _ in range(random.randint(1, 5)):
                    world.turn_some(record)
                    time.sleep(random.uniform(0.0, 1.0))
                if is_full:
                    free()
                    _until(lambda: world.is_recorded(record))
                if random.random() < 0.7:
                    watch.again()
            server.status, server.slow_s = 200, 0.0
            _until(lambda: not judged(world.due, server.taken)["lost"])
        finally:
            watch.end()
        print("\n".join(Path(name, "out").read_text(encoding="utf-8").splitlines()[-3:]))
        repeated = len(server.taken) - len({notification["id"] for notification in server.taken})
        print(f"{dict(seen)}, {watch.kills} kills")
        print(f"notifications: {len(server.taken)}, {repeated} of them with an id that came before")
        return {"alerts": world.alerts, **judged(world.due, server.taken)}


def _until(is_so: Callable[[], bool]) -> None:
    ended = time.monotonic() + TIMEOUT_S
    while not is_so() and time.monotonic() < ended:
        time.sleep(LOOK_S)


def main() -> int:
    """Run the command."""
    parser = Arguments("scripts/chaos", __doc__)
    parser.add_argument("--seconds", type=count, default=60, help="duration (default 60)")
    parser.add_argument("--seed", type=count, default=1, help="random seed, to repeat a run (default 1)")
    option = parser.parse_args()
    counts = chaos(option.seconds, option.seed)
    print(json.dumps(counts))
    return int(any(number for name, number in counts.items() if name != "alerts"))


if __name__ == "__main__":
    sys.exit(main())
