"""The notifying part of a watch, as a process that can be killed: it reads from a file what is broken now.

States, recording, outbox and notifier are those of the command; only the nodes are missing.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.watch import RuleResult, recording
from clusterproof.plugins.watch.controller import Controller, WatchSettings
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.notify import notifier, outbox_file
from clusterproof.plugins.watch.notify.services import receiver_of
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from clusterproof.plugins.watch.sinks import Sinks
from clusterproof.plugins.watch.timing import TIMING
from clusterproof.plugins.watch.watch import Watch

LOOK_S = 0.02
QUICK_S = 0.1  # replaces pauses of seconds and minutes
RULE = "gpu.no_xid"
NEVER = 1_000_000  # how often a state opens before it counts as flapping


def watch(names: list[str], broken: Path, record: Path, command: str) -> None:
    """Run until killed."""
    notifier.GATHER_S = notifier.FIRST_S = outbox_file.RETRY_S = recording.RETRY_S = QUICK_S
    notifier.CHECK_S, notifier.MAX_S = QUICK_S, 5 * QUICK_S
    cluster = Cluster("chaos", "ssh", tuple(map(Target, names)))
    state = Watch(Evaluator(cluster, NO_POLICY), 1.0, names, time.monotonic(), replace(TIMING, flaps_times=NEVER))
    kept = recording.Recording(record, 1.0, _say)
    state.resume(kept.earlier_changes(), time.time() - time.monotonic())
    settings = WatchSettings(SamplerOptions(1.0), Limits(), ProbeOptions())
    with Sinks(cluster.name, state, _say) as sinks:
        sinks.notify([receiver_of(command, 1)], record)
        controller = Controller(cluster, state, settings, kept, lambda _: None, sinks, _say)
        while True:
            now = json.loads(broken.read_text(encoding="utf-8"))
            for name in names:
                results = {("GPU 0", RULE): RuleResult(Verdict.FAIL, "Xid 79; expected none")} if name in now else {}
                controller._report(state.states.events(name, frozenset({RULE}), results, time.monotonic()))
            kept.guard(lambda: None, time.monotonic())
            time.sleep(LOOK_S)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    watch(sys.argv[1].split(","), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
