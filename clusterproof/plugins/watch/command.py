"""`clusterproof watch`: runs a watch as its command line says, until its end."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE
from clusterproof.plugins.core.opened import keep_private
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import EXIT_FAILED, EXIT_INCOMPLETE, Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.policy import find_policy, refuse_empty, refuse_unknown
from clusterproof.plugins.training_run.formats.placement import write_pods
from clusterproof.plugins.watch import Change
from clusterproof.plugins.watch.changes_file import CHANGES_FILE
from clusterproof.plugins.watch.controller import Controller, WatchSettings, stopped_by_signals
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.http_server import Address
from clusterproof.plugins.watch.job import JobMonitor, evaluate_recorded, job_query, keep_latest
from clusterproof.plugins.watch.notify.outbox_file import with_delivered
from clusterproof.plugins.watch.notify.services import receiver_of
from clusterproof.plugins.watch.options import (
    Refused,
    cluster_to_watch,
    complete,
    parser,
    remind_s,
    settings_of,
    timing_of,
)
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.sinks import Sinks
from clusterproof.plugins.watch.view import LineView, ScreenView, beginning, print_line, summary
from clusterproof.plugins.watch.watch import Watch


def watch(arguments: Sequence[str]) -> tuple[int, str]:
    """Returns the exit code and the command line's error. Raises SystemExit as argparse does."""
    option = parser().parse_args(arguments)
    try:
        complete(option)
        policy = find_policy(option.policy, Path.cwd(), option.cluster or "")
        if option.policy:
            refuse_empty(option.policy, Path.cwd())
        refuse_unknown(policy, frozenset(all_checks()))
        if policy.ignored:
            sys.stderr.write(f"clusterproof watch: {printable(policy.ignored)}\n")
        cluster = cluster_to_watch(option, policy)
        settings = settings_of(option, cluster, policy)
        end = keep_private()
        try:
            return _watched(cluster, policy, settings, option), ""
        finally:
            end()
    except ClusterproofError as wrong:
        return BAD_COMMAND_LINE, f"clusterproof watch: {wrong}\n"


def _watched(cluster: Cluster, policy: Policy, settings: WatchSettings, option: argparse.Namespace) -> int:
    """Watch until the end; return the exit code."""
    began = time.monotonic()
    names = [target.name for target in cluster.targets]
    state = Watch(Evaluator(cluster, policy), settings.sampling.every_s, names, began, timing_of(policy))
    view = ScreenView(state, cluster.name) if sys.stdout.isatty() else LineView(state, sys.stdout)
    try:
        recording = Recording(Path(option.record), settings.sampling.every_s, view.message) if option.record else None
        earlier = _earlier(recording, cluster.name) if recording else ()
        before = state.resume(earlier, time.time() - time.monotonic())
    except OSError as problem:
        where, is_another = problem.filename or option.record, isinstance(problem, BlockingIOError)
        expected = "a folder of its own" if is_another else "a writable folder of this user's"
        raise Refused(f"--record {where}: {problem.strerror}; expected {expected}") from None
    sinks = Sinks(cluster.name, state, view.message)
    controller = Controller(cluster, state, settings, recording, view.show, sinks, view.message)
    end = _job_monitor(option.job, cluster, controller, view) if option.job else None
    with stopped_by_signals(controller):
        with view, sinks, end or nullcontext():
            _open(sinks, recording, option)
            view.message(beginning(cluster, settings.sampling.every_s, settings.for_s, option.job or ""))
            for note in cluster.notes:
                view.message(printable(f"the inventory: {note}"))
            if before:
                sinks.states_changed(names)
                view.message(f"still open from before, not reported again: {before} ({option.record}/{CHANGES_FILE})")
            controller.run()
        for line in summary(state, time.monotonic() - began):
            print_line(line, sys.stdout)
        if end and recording:
            folder, pod_hosts = recording.folder, end.pod_hosts
            recording.guard(lambda: keep_latest(folder, names, state.evaluator.latest), time.monotonic())
            recording.guard(lambda: write_pods(folder, pod_hosts), time.monotonic())
            evaluate_recorded(folder, option.steps, option.policy)
    verdicts = set(state.verdicts.values())
    is_incomplete = Verdict.INCOMPLETE in verdicts or bool(state.unknown) or any(state.incomplete.values())
    return EXIT_FAILED if Verdict.FAIL in verdicts else EXIT_INCOMPLETE if is_incomplete else 0


def _earlier(recording: Recording, cluster: str) -> Iterable[Change]:
    """What the watch that this one resumes has reported. Raises OSError."""
    return with_delivered(recording.earlier_changes(), recording.folder, cluster)


def _open(sinks: Sinks, recording: Recording | None, option: argparse.Namespace) -> None:
    """Open the outputs that the command line names. Raises NoAddress, NoTextfile, NoReceiver, NoHeartbeat."""
    if recording:
        sinks.add_part("recording", lambda: recording.is_failing)
    if option.listen is not None:
        sinks.listen(Address.of(option.listen), ("clusterproof", "check", option.cluster))
    if option.textfile is not None:
        sinks.write(Path(option.textfile))
    if option.heartbeat is not None:
        sinks.beat(option.heartbeat)
    receivers = [receiver_of(text, number) for number, text in enumerate(option.notify, start=1)]
    try:
        sinks.notify(receivers, recording.folder if recording else None, remind_s(option))
    except OSError as problem:
        raise Refused(f"--record {option.record}: {problem}; expected an outbox that this user owns") from None


def _job_monitor(job: str, cluster: Cluster, controller: Controller, view: ScreenView | LineView) -> JobMonitor:
    """The monitor that ends the watch with the job. Raises KubernetesError."""
    state, pod_hosts = job_query(job, cluster, view.message)
    end = JobMonitor(job, state, controller.stop, view.message, pod_hosts)
    controller.on_session_end = end.query_soon
    return end
