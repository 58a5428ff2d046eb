"""`clusterproof watch`: watches a cluster while it works, and says what changes."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from clusterproof.plugins.agent.options import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import narrow, resolve, with_expectations
from clusterproof.plugins.policy.file import find_policy
from clusterproof.plugins.suite import command_lines
from clusterproof.plugins.suite.watching.controller import WHY_NOT, Controller, Settings
from clusterproof.plugins.suite.watching.judge import Judge
from clusterproof.plugins.suite.watching.line import How
from clusterproof.plugins.suite.watching.view import Lines, Screen, summary
from clusterproof.plugins.suite.watching.watch import Watch
from clusterproof.plugins.transport import Limits, Unusable
from clusterproof.plugins.watch.changes import CHANGES_FILE
from clusterproof.plugins.watch.recording import Recording

BAD_COMMAND_LINE, FAILED, INCOMPLETE = 4, 1, 6
LEAST_EVERY_S, MOST_EVERY_S = 1.0, 3600.0
_SPAN = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Refused(Exception):  # noqa: N818 - an outcome of the command line
    """What the command line asks for cannot be; the message says what was expected."""


def watch(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what is wrong with the command line. Raises SystemExit where argparse does."""
    option = command_lines.watch().parse_args(arguments)
    try:
        policy = find_policy(option.policy, Path.cwd())
        cluster = _cluster(option, policy)
        settings = _settings(option, cluster, policy)
        return _watched(cluster, policy, settings, option.record), ""
    except (Refused, InventoryError, Unusable) as wrong:
        return BAD_COMMAND_LINE, f"clusterproof watch: {wrong}\n"


def _cluster(option: argparse.Namespace, policy: Policy) -> Cluster:
    given = {key: getattr(option, key) for key in ("region", "profile", "via")}
    found = resolve(option.cluster, {key: value for key, value in given.items() if value})
    found = narrow(found, option.nodes, option.exclude)
    found = with_expectations(found, option.instance_type, option.expect, policy.expect)
    if found.connection in WHY_NOT:
        raise Refused(
            f"{option.cluster:.80} is reached by {found.connection}: {WHY_NOT[found.connection]}; "
            "expected local or nodes that are reached by ssh (of Slurm: --via nodes)"
        )
    return found


def _settings(option: argparse.Namespace, cluster: Cluster, policy: Policy) -> Settings:
    every_s = _span(option.every, "--every")
    if not LEAST_EVERY_S <= every_s <= MOST_EVERY_S:
        raise Refused(f"--every is {option.every:.20}; expected from {LEAST_EVERY_S:.0f} to {MOST_EVERY_S:.0f} s")
    if option.fanout < 1 or option.connect_timeout <= 0:
        raise Refused("--fanout and --connect-timeout are too small; expected at least 1 and more than 0")
    trust = {"accept_new_host_keys": "yes"} if option.accept_new_host_keys else {}
    return Settings(
        How(every_s, option.host_root, option.sudo),
        Limits(option.fanout, option.connect_timeout, settings={**cluster.settings, **trust}),
        ProbeOptions(
            host_root=option.host_root, sudo=option.sudo, checkpoints=policy.checkpoints, mounts=policy.mounts
        ),
        None if option.for_s is None else _span(option.for_s, "--for"),
    )


def _span(text: str, flag: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `24h`, `2d`. Raises Refused."""
    found = _SPAN.fullmatch(text)
    if not found:
        raise Refused(f"{flag} is {text[:40]!r}; expected a time span such as 90s, 30m or 24h")
    return float(found[1]) * _SECONDS[found[2]]


def _watched(cluster: Cluster, policy: Policy, settings: Settings, record: str | None) -> int:
    """Watch until the end; the exit code."""
    began = time.monotonic()
    names = [target.name for target in cluster.targets]
    state = Watch(Judge(cluster, policy), settings.how.every_s, names, began)
    view = Screen(state, cluster.name) if sys.stdout.isatty() else Lines(sys.stdout)
    try:
        recording = Recording(Path(record), settings.how.every_s, view.say) if record else None
        before = state.resume(recording.said_before(), time.time() - began) if recording else 0
    except OSError as problem:
        raise Refused(f"--record {record}: {problem.strerror}; expected a folder that may be written") from None
    controller = Controller(cluster, state, settings, recording, view.show)
    ends = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, lambda *_: controller.stop()) for number in ends}
    try:
        with view:
            if before:
                view.say(f"open since before, and not said again: {before} ({record}/{CHANGES_FILE})")
            controller.run()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for line in summary(state, time.monotonic() - began):
        sys.stdout.write(f"{line}\n")
    verdicts = set(state.verdicts.values())
    return FAILED if Verdict.FAIL in verdicts else INCOMPLETE if Verdict.INCOMPLETE in verdicts else 0
