"""The watch command as a separate process beside the testbed, and what it costs."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clusterproof.plugins.watch.changes_file import CHANGES_FILE, read_changes
from tests.testbed.cluster import Testbed
from tests.watch.outages import QUICK
from tests.watch.watched_bed import Watched

PORT = 9188
LOOK_S = 0.5  # between readings of its output and samples
TIMEOUT_S = 90.0
MAIN = f"""import sys
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.watch import sampler_session, watch
from clusterproof.plugins.transport.ssh import session
{"".join(f"{name} = {value}{chr(10)}" for name, value in QUICK.items())}sys.exit(main())"""
_SAMPLES = re.compile(r'^clusterproof_watch_node_samples_total\{.*node="(.+?)".*\} (\S+)$', re.MULTILINE)


@dataclass
class WatchProcess(Watched):
    """The process, its output, and the number of samples from each node."""

    pid: int = field(kw_only=True)
    ticks: dict[str, int] = field(default_factory=dict)

    def samples(self, node: str) -> int:
        """The samples of each node, from its metrics."""
        return self.ticks.get(node, 0)

    @property
    def resident_mib(self) -> float:
        """Resident set size."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1])
        return pages * resource.getpagesize() / (1 << 20)

    @property
    def threads(self) -> int:
        """Number of threads."""
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    @property
    def files(self) -> int:
        """Number of open files, including sockets and pipes."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextmanager
def watch_process(bed: Testbed, record: Path, every_s: float) -> Iterator[WatchProcess]:
    """Watch all nodes of the testbed until the block ends."""
    command = [sys.executable, "-c", MAIN, "watch", "--cluster", f"ssh:{','.join(bed.addresses)}"]
    command += ["--every", f"{every_s}", "--record", str(record), "--listen", f":{PORT}", "--connect-timeout", "5"]
    environment = {**os.environ, "HOME": str(bed.home)}
    with record.with_suffix(".out").open("wb") as out:
        process = subprocess.Popen(bed.command(command), stdout=out, stderr=out, env=environment)
    running = WatchProcess(bed=bed, pid=process.pid)
    is_over = threading.Event()
    follower = threading.Thread(target=_follow, args=(running, record / CHANGES_FILE, is_over))
    follower.start()
    try:
        yield running
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)
    finally:
        is_over.set()
        follower.join()
        process.kill()
        process.wait()


def _follow(running: WatchProcess, changes: Path, is_over: threading.Event) -> None:
    """Keep these figures up to date."""
    with running.bed.joined():
        while not is_over.wait(LOOK_S):
            running.said = list(read_changes(changes)) if changes.exists() else []
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=TIMEOUT_S) as answer:
                    text = answer.read().decode()
            except OSError:
                continue  # it does not listen yet, or has ended
            running.ticks |= {node: int(float(count)) for node, count in _SAMPLES.findall(text)}
