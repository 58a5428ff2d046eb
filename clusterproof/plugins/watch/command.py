"""`clusterproof watch`: watches a cluster while it works, and says what changes."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE
from clusterproof.plugins.core.opened import keep_private
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import EXIT_FAILED, EXIT_INCOMPLETE, Verdict
from clusterproof.plugins.kubernetes.api import KubernetesError
from clusterproof.plugins.policy import find_policy
from clusterproof.plugins.training_run.formats.placement import write_pods
from clusterproof.plugins.transport import Unusable
from clusterproof.plugins.watch.controller import Controller, Settings
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.http_server import Address, NoAddress
from clusterproof.plugins.watch.job import (
    JobMonitor,
    NoJob,
    cluster_of,
    evaluate_recorded,
    folder_of,
    job_query,
    keep_latest,
)
from clusterproof.plugins.watch.notify.heartbeat import NoHeartbeat
from clusterproof.plugins.watch.notify.receiver import NoReceiver
from clusterproof.plugins.watch.notify.services import receiver_of
from clusterproof.plugins.watch.options import Refused, cluster_to_watch, parser, remind_s, settings_of, timing_of
from clusterproof.plugins.watch.recording import CHANGES_FILE, Recording
from clusterproof.plugins.watch.sinks import NoTextfile, Sinks
from clusterproof.plugins.watch.view import Lines, Screen, beginning, summary
from clusterproof.plugins.watch.watch import Watch


def watch(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what is wrong with the command line. Raises SystemExit where argparse does."""
    option = parser().parse_args(arguments)
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
        cluster = cluster_to_watch(option, policy)
        settings = settings_of(option, cluster, policy)
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


def _watched(cluster: Cluster, policy: Policy, settings: Settings, option: argparse.Namespace) -> int:
    """Watch until the end; the exit code."""
    began = time.monotonic()
    names = [target.name for target in cluster.targets]
    state = Watch(Evaluator(cluster, policy), settings.sampling.every_s, names, began, timing_of(policy))
    view = Screen(state, cluster.name) if sys.stdout.isatty() else Lines(state, sys.stdout)
    try:
        recording = Recording(Path(option.record), settings.sampling.every_s, view.say) if option.record else None
        before = state.resume(recording.said_before(), time.time() - began) if recording else 0
    except OSError as problem:
        raise Refused(f"--record {option.record}: {problem.strerror}; expected a folder that may be written") from None
    sinks = Sinks(cluster.name, state, view.say)
    controller = Controller(cluster, state, settings, recording, view.show, sinks, view.say)
    end = _job_monitor(option.job, cluster, controller, view) if option.job else None
    with _stopped_by_signals(controller):
        with view, sinks, end or nullcontext():
            _open(sinks, recording, option)
            view.say(beginning(cluster, settings.sampling.every_s, settings.for_s, option.job or ""))
            if before:
                sinks.look(names)
                view.say(f"open since before, and not said again: {before} ({option.record}/{CHANGES_FILE})")
            controller.run()
        for line in summary(state, time.monotonic() - began):
            sys.stdout.write(f"{line}\n")
        if end and recording:
            folder, pod_hosts = recording.folder, end.pod_hosts
            recording.guard(lambda: keep_latest(folder, names, state.evaluator.latest), time.monotonic())
            recording.guard(lambda: write_pods(folder, pod_hosts), time.monotonic())
            evaluate_recorded(folder, option.steps, option.policy)
    verdicts = set(state.verdicts.values())
    is_incomplete = Verdict.INCOMPLETE in verdicts or bool(state.unknown)
    return EXIT_FAILED if Verdict.FAIL in verdicts else EXIT_INCOMPLETE if is_incomplete else 0


def _open(sinks: Sinks, recording: Recording | None, option: argparse.Namespace) -> None:
    """Open the sinks that the command line names. Raises NoAddress, NoTextfile, NoReceiver, NoHeartbeat."""
    if recording:
        sinks.add_part("recording", lambda: recording.is_failing)
    if option.listen is not None:
        sinks.listen(Address.of(option.listen), ("clusterproof", "check", option.cluster))
    if option.textfile is not None:
        sinks.write(Path(option.textfile))
    if option.heartbeat is not None:
        sinks.beat(option.heartbeat)
    receivers = [receiver_of(text, number) for number, text in enumerate(option.notify, start=1)]
    if receivers:
        try:
            sinks.notify(receivers, recording.folder if recording else None, remind_s(option))
        except OSError as problem:
            raise Refused(f"--record {option.record}: {problem}; expected an outbox of this user's there") from None


def _job_monitor(job: str, cluster: Cluster, controller: Controller, view: Screen | Lines) -> JobMonitor:
    """What ends the watch with the job. Raises KubernetesError."""
    state, pod_hosts = job_query(job, cluster, view.say)
    end = JobMonitor(job, state, controller.stop, view.say, pod_hosts)
    controller.sinks.on_end(end.ask)
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
