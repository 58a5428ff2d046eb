"""`clusterproof watch`: watches a cluster while it works, and says what changes."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.core.written import keep_private
from clusterproof.plugins.inventory import narrow, resolve, with_expectations
from clusterproof.plugins.kubernetes import HOST
from clusterproof.plugins.kubernetes.api import KubernetesError
from clusterproof.plugins.policy.file import find_policy
from clusterproof.plugins.suite import command_lines
from clusterproof.plugins.suite.exit_code import EXIT_INCOMPLETE
from clusterproof.plugins.suite.watching.controller import WHY_NOT, Controller, Settings
from clusterproof.plugins.suite.watching.evaluator import Evaluator
from clusterproof.plugins.suite.watching.heartbeat import NoHeartbeat
from clusterproof.plugins.suite.watching.job import (
    JobEnd,
    NoJob,
    asking,
    cluster_of,
    evaluate_recorded,
    folder_of,
    keep_latest,
)
from clusterproof.plugins.suite.watching.line import How
from clusterproof.plugins.suite.watching.outlets import Outlets
from clusterproof.plugins.suite.watching.receivers import receiver_of
from clusterproof.plugins.suite.watching.view import Lines, Screen, beginning, summary
from clusterproof.plugins.suite.watching.watch import Watch
from clusterproof.plugins.training_run.formats.placement import write_pods
from clusterproof.plugins.transport import Limits, Unusable
from clusterproof.plugins.transport.stays import JOB, STREAMING
from clusterproof.plugins.transport.submit_host import submit_host
from clusterproof.plugins.watch.changes import CHANGES_FILE
from clusterproof.plugins.watch.listening import Address, NoAddress
from clusterproof.plugins.watch.pace import Pace, WrongPace
from clusterproof.plugins.watch.receiver import NoReceiver
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.textfile import NoTextfile

BAD_COMMAND_LINE, FAILED, INCOMPLETE = 4, 1, EXIT_INCOMPLETE
MIN_REMIND_S = 60.0
MIN_EVERY_S, MAX_EVERY_S = 1.0, 3600.0
_SPAN = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Refused(Exception):  # noqa: N818 - an outcome of the command line
    """What the command line asks for cannot be; the message says what was expected."""


def watch(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what is wrong with the command line. Raises SystemExit where argparse does."""
    option = command_lines.watch().parse_args(arguments)
    try:
        if option.x and option.cluster:
            raise Refused(f"both {option.x:.80} and --cluster {option.cluster:.80} are given; expected one of them")
        option.cluster = option.x or option.cluster
        if option.job:
            option.cluster = cluster_of(option.job, option.cluster)
            option.record = option.record or folder_of(option.job)
        if not option.cluster:
            raise Refused("nothing to watch; expected clusterproof watch X, or --job ID")
        if option.remind and not option.notify:
            raise Refused("--remind repeats notifications; expected --notify with it")
        if option.steps and not option.job:
            raise Refused("--steps is for a job; expected --job ID with it")
        policy = find_policy(option.policy, Path.cwd())
        if policy.ignored:
            sys.stderr.write(f"clusterproof watch: {policy.ignored}\n")
        cluster = _cluster(option, policy)
        settings = _settings(option, cluster, policy)
        end = keep_private()
        try:
            return _watched(cluster, policy, settings, option), ""
        finally:
            end()
    except (
        Refused,
        KubernetesError,
        NoJob,
        InventoryError,
        Unusable,
        NoAddress,
        NoTextfile,
        NoReceiver,
        NoHeartbeat,
    ) as wrong:
        return BAD_COMMAND_LINE, f"clusterproof watch: {wrong}\n"


def _cluster(option: argparse.Namespace, policy: Policy) -> Cluster:
    given = {key: getattr(option, key) for key in ("region", "profile", "via")}
    found = resolve(option.cluster, {key: value for key, value in given.items() if value})
    found = narrow(found, option.nodes, option.exclude)
    found = with_expectations(found, option.instance_type, option.expect, policy.expect)
    why_not = why_not_watched(found)
    if why_not:
        raise Refused(f"{option.cluster:.80} is reached by {found.connection}: {why_not}")
    return found


def why_not_watched(cluster: Cluster) -> str:
    """Why nothing can stay on the nodes of a cluster, and what can be instead; empty where it can."""
    if cluster.connection != "srun":
        instead = "expected local, nodes by ssh (of Slurm: --via nodes), slurm:job:ID, or Kubernetes nodes"
        return f"{WHY_NOT[cluster.connection]}; {instead}" if cluster.connection in WHY_NOT else ""
    way = submit_host(cluster.settings).connection
    if way not in STREAMING:
        return f"on a host that is reached by {way}: {WHY_NOT[way]}; expected --via nodes with ssh, or a log-in node"
    if not cluster.settings.get(JOB):
        return "without a job it would hold a place on each node while it lasts; expected slurm:job:ID, or --via nodes"
    return ""


def _settings(option: argparse.Namespace, cluster: Cluster, policy: Policy) -> Settings:
    every_s = _span(option.every, "--every")
    if not MIN_EVERY_S <= every_s <= MAX_EVERY_S:
        raise Refused(f"--every is {option.every:.20}; expected from {MIN_EVERY_S:.0f} to {MAX_EVERY_S:.0f} s")
    if option.fanout < 1 or option.connect_timeout <= 0:
        raise Refused("--fanout and --connect-timeout are too small; expected at least 1 and more than 0")
    trust = {"accept_new_host_keys": "yes"} if option.accept_new_host_keys else {}
    ours = {key: getattr(option, key) for key in ("k8s_namespace", "k8s_image") if getattr(option, key)}
    root = HOST if option.k8s_image and cluster.connection == "kubernetes" else option.host_root
    return Settings(
        How(every_s, root, option.sudo, policy.mounts),
        Limits(option.fanout, option.connect_timeout, settings={**cluster.settings, **trust, **ours}),
        ProbeOptions(host_root=root, sudo=option.sudo, checkpoints=policy.checkpoints, mounts=policy.mounts),
        None if option.for_s is None else _span(option.for_s, "--for"),
    )


def _pace(policy: Policy) -> Pace:
    try:
        return Pace.of(Catalog.of(policy))
    except WrongPace as wrong:
        raise Refused(f"{policy.source}: {wrong}") from None


def _span(text: str, flag: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `24h`, `2d`. Raises Refused."""
    found = _SPAN.fullmatch(text)
    if not found:
        raise Refused(f"{flag} is {text[:40]!r}; expected a time span such as 90s, 30m or 24h")
    return float(found[1]) * _SECONDS[found[2]]


def _watched(cluster: Cluster, policy: Policy, settings: Settings, option: argparse.Namespace) -> int:
    """Watch until the end; the exit code."""
    began = time.monotonic()
    names = [target.name for target in cluster.targets]
    state = Watch(Evaluator(cluster, policy), settings.how.every_s, names, began, _pace(policy))
    view = Screen(state, cluster.name) if sys.stdout.isatty() else Lines(state, sys.stdout)
    try:
        recording = Recording(Path(option.record), settings.how.every_s, view.say) if option.record else None
        before = state.resume(recording.said_before(), time.time() - began) if recording else 0
    except OSError as problem:
        raise Refused(f"--record {option.record}: {problem.strerror}; expected a folder that may be written") from None
    outlets = Outlets(cluster.name, state, view.say)
    controller = Controller(cluster, state, settings, recording, view.show, outlets, view.say)
    end = _end_of(option.job, cluster, controller, view) if option.job else None
    with _stopped_by_signals(controller):
        with view, outlets, end or nullcontext():
            _open(outlets, recording, option)
            view.say(beginning(cluster, settings.how.every_s, settings.for_s, option.job or ""))
            if before:
                outlets.look(names)
                view.say(f"open since before, and not said again: {before} ({option.record}/{CHANGES_FILE})")
            controller.run()
        for line in summary(state, time.monotonic() - began):
            sys.stdout.write(f"{line}\n")
        if end and recording:
            folder, places = recording.folder, end.places
            recording.guard(lambda: keep_latest(folder, names, state.evaluator.latest), time.monotonic())
            recording.guard(lambda: write_pods(folder, places), time.monotonic())
            evaluate_recorded(folder, option.steps, option.policy)
    verdicts = set(state.verdicts.values())
    is_incomplete = Verdict.INCOMPLETE in verdicts or bool(state.unknown)
    return FAILED if Verdict.FAIL in verdicts else INCOMPLETE if is_incomplete else 0


def _open(outlets: Outlets, recording: Recording | None, option: argparse.Namespace) -> None:
    """Open the outlets that the command line names. Raises NoAddress, NoTextfile, NoReceiver, NoHeartbeat."""
    if recording:
        outlets.add_part("recording", lambda: recording.is_failing)
    if option.listen is not None:
        outlets.listen(Address.of(option.listen))
    if option.textfile is not None:
        outlets.write(Path(option.textfile))
    if option.heartbeat is not None:
        outlets.beat(option.heartbeat)
    receivers = [receiver_of(text, number) for number, text in enumerate(option.notify, start=1)]
    if receivers:
        try:
            outlets.notify(receivers, recording.folder if recording else None, _remind_s(option))
        except OSError as problem:
            raise Refused(f"--record {option.record}: {problem}; expected an outbox of this user's there") from None


def _remind_s(option: argparse.Namespace) -> float | None:
    """After how long what stays open is sent again. Raises Refused."""
    if option.remind is None:
        return None
    seconds = _span(option.remind, "--remind")
    if seconds < MIN_REMIND_S:
        raise Refused(f"--remind is {option.remind:.20}; expected a minute or more, such as 4h")
    return seconds


def _end_of(job: str, cluster: Cluster, controller: Controller, view: Screen | Lines) -> JobEnd:
    """What ends the watch with the job. Raises KubernetesError."""
    state, places = asking(job, cluster, view.say)
    end = JobEnd(job, state, controller.stop, view.say, places)
    controller.outlets.on_end(end.ask)
    return end


@contextmanager
def _stopped_by_signals(controller: Controller) -> Iterator[None]:
    ends = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, lambda *_: controller.stop()) for number in ends}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
