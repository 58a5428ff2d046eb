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
from clusterproof.plugins.core.kinds import forms
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import narrow, resolve, with_expectations
from clusterproof.plugins.policy.file import find_policy
from clusterproof.plugins.suite.watching.controller import WHY_NOT, Controller, Settings
from clusterproof.plugins.suite.watching.judge import Judge
from clusterproof.plugins.suite.watching.line import How
from clusterproof.plugins.suite.watching.view import Lines, Screen, summary
from clusterproof.plugins.suite.watching.watch import Watch
from clusterproof.plugins.transport import Limits, Unusable
from clusterproof.plugins.watch.recording import Recording

BAD_COMMAND_LINE, FAILED, INCOMPLETE = 4, 1, 6
LEAST_EVERY_S, MOST_EVERY_S = 1.0, 3600.0
_SPAN = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Refused(Exception):  # noqa: N818 - an outcome of the command line
    """What the command line asks for cannot be; the message says what was expected."""


def watch(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what is wrong with the command line. Raises SystemExit where argparse does."""
    option = _parser().parse_args(arguments)
    try:
        policy = find_policy(option.policy, Path.cwd())
        cluster = _cluster(option, policy)
        settings = _settings(option, cluster, policy)
        return _watched(cluster, policy, settings, option.record), ""
    except (Refused, InventoryError, Unusable) as wrong:
        return BAD_COMMAND_LINE, f"clusterproof watch: {wrong}\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clusterproof watch",
        description="Samples the nodes of a cluster while it works, follows their kernel logs, judges by the same "
        "checks, and says what changes. Ends by SIGINT or SIGTERM, or after --for.",
        allow_abbrev=False,
    )
    parser.add_argument("--cluster", required=True, metavar="X", help=f"what to watch: {forms()}")
    parser.add_argument("--nodes", default="", metavar="NODESET", help="only these nodes of it")
    parser.add_argument("--exclude", default="", metavar="NODESET", help="but not these")
    parser.add_argument("--every", default="10", metavar="S", help="seconds between samples (default 10)")
    parser.add_argument("--for", dest="for_s", metavar="TIME", help="how long: 90s, 30m, 24h (default: until stopped)")
    parser.add_argument("--record", metavar="DIR", help="keep samples, evidence and changes, for --cluster replay:DIR")
    parser.add_argument("--policy", metavar="FILE", help="the site's own numbers, expectations and exceptions")
    parser.add_argument("--instance-type", default="", metavar="TYPE", help="where nothing else tells it")
    parser.add_argument("--expect", default="", metavar="K=N,…", help="what every node must have, e.g. gpus=8,efa=32")
    parser.add_argument("--region", default="", metavar="REGION", help="the AWS region")
    parser.add_argument("--profile", default="", metavar="NAME", help="the AWS profile")
    parser.add_argument("--via", default="", metavar="WAY", help="how to reach nodes of Slurm: nodes (ssh)")
    parser.add_argument("--fanout", type=int, default=64, metavar="N", help="how many to connect to at once (64)")
    parser.add_argument("--connect-timeout", type=float, default=15.0, metavar="S", help="to reach a node (15)")
    parser.add_argument("--accept-new-host-keys", action="store_true", help="on trust, for this watch only")
    parser.add_argument("--sudo", action="store_true", help="run under sudo -n, for what only root may read")
    parser.add_argument("--host-root", default="/", metavar="DIR", help="read the host under this folder of the node")
    return parser


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
    except OSError as problem:
        raise Refused(f"--record {record}: {problem.strerror}; expected a folder that may be written") from None
    controller = Controller(cluster, state, settings, recording, view.show)
    before = {number: signal.signal(number, lambda *_: controller.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with view:
            controller.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for line in summary(state, time.monotonic() - began):
        sys.stdout.write(f"{line}\n")
    verdicts = set(state.verdicts.values())
    return FAILED if Verdict.FAIL in verdicts else INCOMPLETE if Verdict.INCOMPLETE in verdicts else 0
