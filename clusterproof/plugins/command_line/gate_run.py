"""`clusterproof gate run`: evaluates nodes with new reports, round by round.

One request shows the state of all agents. If a state is unchanged, its findings remain valid, and a heartbeat confirms
them. Nodes are evaluated in shares, each by its own process: a change costs one share, and no process holds a large
cluster in memory.
"""

from __future__ import annotations

import argparse
import gc
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from prometheus_client import CollectorRegistry, make_wsgi_app

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.inventory.kubernetes import access_to
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import ASKED, Api
from clusterproof.plugins.kubernetes.gate import LIMIT, NOT_REACHED, OBSERVE, REFRESH_S, GateSettings, resident
from clusterproof.plugins.kubernetes.gate.metrics import GateMetrics
from clusterproof.plugins.kubernetes.gate.round import Round, keep_verdicts, kept_verdicts, pop_stored, round_of
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome, write
from clusterproof.plugins.kubernetes.pods import Pod, PodPages
from clusterproof.plugins.transport.kubernetes import NAMESPACE
from clusterproof.plugins.transport.kubernetes.agents import agents_of, is_changing
from clusterproof.plugins.transport.kubernetes.report_cache import AgentPods, hand_over
from clusterproof.plugins.transport.kubernetes.shares import NodeShare, Shares
from clusterproof.plugins.watch.http_server import Address, Listener

MAIN = "from clusterproof.plugins.command_line.main import main; raise SystemExit(main())"
EVALUATE = ("--via", "agents", "-m", "prolog or epilog", "--no-report", "-q", "-p", "no:cacheprovider")
AWS = ("region", "profile")  # options that locate an EKS cluster
EVALUATE_S = 600.0  # for one share: then its process is killed
OUTPUT = "output"  # the process's output, among the files kept
LAST_LINES = 20  # shown of a process that left no result
GC_THRESHOLDS = (100_000, 20, 100)  # disables collection while a listing of 100 MB, which has no cycles, is decoded
END_S = 10.0  # for it to exit after being asked to


def run(option: argparse.Namespace, further: Sequence[str], is_over: threading.Event) -> int:
    """Run rounds until a signal ends it.

    Raises NoAddress if the port for Prometheus cannot be opened.
    """
    tally = GateMetrics(option.every)
    gc.set_threshold(*GC_THRESHOLDS)
    with ExitStack() as stack:
        keep = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clusterproof-gate-")))
        if option.listen:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(tally)
            stack.callback(Listener(Address.of(option.listen), {"/metrics": make_wsgi_app(registry)}).close)
        rounds = Rounds(option, further, keep, tally, is_over)
        while not is_over.is_set():
            began = time.monotonic()
            rounds.make()
            is_over.wait(max(0.0, began + min(option.every, REFRESH_S) - time.monotonic()))
    return 0


class Rounds:
    """The rounds of one gate, and the state between them."""

    def __init__(
        self,
        option: argparse.Namespace,
        further: Sequence[str],
        keep: Path,
        tally: GateMetrics,
        is_over: threading.Event,
    ) -> None:
        self._command = command(option, further, keep)
        self._option = option
        self._where = option.x.partition("/")[0] if option.x.startswith("eks:") else option.x  # whatever nodes it has
        self._own = _own_options(further)
        self._keep = keep
        self._tally = tally
        self._is_over = is_over
        self._shares = Shares(option.every)
        self._targets: tuple[Target, ...] = ()  # of a cluster that is divided into shares
        self._pages = PodPages()
        self._orders = resident(
            GateSettings(self._own.k8s_gate, self._own.k8s_max_tainted, self._own.k8s_startup_taint), option.every
        )
        self._refreshed = 0.0  # when all conditions were last reviewed, in seconds since 1970
        self._reported: Mapping[str, float] = {}  # when each node's report was read, in seconds since 1970
        self._silent: frozenset[str] = frozenset()  # nodes whose evaluation gave no result
        self._is_pending = False

    def make(self) -> None:
        """One round: evaluate what is due, else confirm what is unchanged."""
        began = time.time()
        before = ASKED.copy()
        try:
            api = open_api(access_to(self._where, aws(self._option)))
            agents = self._agents(api).own
            due = self._due_shares(agents, began)
            for share in due:
                if not self._is_over.is_set():
                    self._evaluate(share, self._agents(api), began)
        except (ClusterproofError, OSError) as problem:
            known = kept_verdicts(self._keep).keys() | self._reported.keys()
            is_old = began >= self._refreshed + self._orders.patience_s  # a refresh is due
            self._fail([f"ERROR: {problem}"], known if is_old else ())
            return
        if not due or (self._is_due(began) and kept_verdicts(self._keep)):
            self._confirm(api, agents, began, before)

    def _is_due(self, now: float) -> bool:
        """Whether all conditions are due for a review, regardless of changes."""
        return now >= self._refreshed + REFRESH_S

    def _agents(self, api: Api) -> AgentPods:
        """The state of the agents. Raises KubernetesError."""
        return agents_of(api, self._own.k8s_namespace, self._pages)

    def _due_shares(self, agents: Mapping[str, Pod], now: float) -> list[NodeShare]:
        """The shares that are due; findings on nodes with changed reports become invalid.

        Raises ClusterproofError.
        """
        if self._shares.are_unknown(agents, now):
            is_part = bool(self._own.nodes or self._own.exclude)
            cluster = None if is_part else resolve(self._option.x, {"via": "agents", **aws(self._option)})
            self._targets = cluster.targets if cluster else ()
            self._shares.divide(self._targets, agents, now)
        self._silent = frozenset(filter(self._shares.has, self._silent))
        verdicts = kept_verdicts(self._keep)
        due = self._shares.due_shares(agents, {node: verdict.health for node, verdict in verdicts.items()}, now)
        kept = {node: verdict for node, verdict in verdicts.items() if self._shares.is_current(node, agents)}
        if kept != verdicts:
            keep_verdicts(self._keep, kept)
        return due

    def _run_checks(self, nodes: Sequence[str]) -> list[str]:
        """Run the suite in a process of its own until it ends, is late, or the gate ends; its last lines."""
        with (self._keep / OUTPUT).open("w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", MAIN, *self._command, *nodes],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            until = time.monotonic() + EVALUATE_S
            while process.poll() is None and not self._is_over.wait(0.2) and time.monotonic() < until:
                pass
            _end(process)
            output.seek(0)
            return output.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]

    def _evaluate(self, share: NodeShare, agents: AgentPods, began: float) -> None:
        """Evaluate a share, and write what was found of it: a line of it, and of each change."""
        before = kept_verdicts(self._keep)
        hand_over(
            self._keep,
            (target for target in self._targets if share.names is not None and share.has(target.name)),
            agents,
        )
        last = self._run_checks([] if share.names is None else ["--nodes", fold(share.names)])
        gate_round = pop_stored(self._keep)
        if self._is_over.is_set() and gate_round is None:
            return
        if gate_round is None:
            keep_verdicts(self._keep, {node: verdict for node, verdict in before.items() if not share.has(node)})
            share.is_open = True
            self._silent |= {node for node in before.keys() | self._reported.keys() if share.has(node)}
            self._shares.forget()
            self._fail(last)
            return
        after = kept_verdicts(self._keep)
        earlier, later = ({n: verdict.health for n, verdict in verdicts.items()} for verdicts in (before, after))
        is_same = earlier == later
        share.evaluated(agents.own, began, is_open=gate_round.is_open, is_same=is_same)
        self._is_pending |= gate_round.is_pending or bool(gate_round.problems)
        self._refreshed = self._refreshed or began
        self._silent = frozenset({n for n in self._silent if not share.has(n)}.union(gate_round.silent))
        reported = {**self._reported, **gate_round.reported}
        known = after.keys() | gate_round.reported.keys() | self._silent
        self._reported = {n: at for n, at in reported.items() if n in known}
        self._log_round(replace(gate_round, reported=self._reported))

    def _confirm(self, api: Api, agents: Mapping[str, Pod], now: float, before: Counter[str]) -> None:
        """Refresh due conditions of nodes whose agents report no change, or that were just evaluated."""
        verdicts = kept_verdicts(self._keep)
        late = now - self._orders.patience_s
        changing = {node for node, pod in agents.items() if is_changing(pod)}
        changing -= {
            n for n, verdict in verdicts.items() if verdict.began > late or verdict.health.reason == NOT_REACHED
        }
        sure = {n: verdict for n, verdict in verdicts.items() if n not in changing}
        written, health_by_node = (
            WriteOutcome((f"{len(verdicts)} nodes as before",), ()),
            {n: verdict.health for n, verdict in sure.items()},
        )
        is_due = self._is_due(now)
        if is_due or self._is_pending:
            orders = replace(self._orders, refresh_s=REFRESH_S / 2) if is_due else self._orders
            began = {node: verdict.began for node, verdict in sure.items()}
            written = write(api, orders, health_by_node, now, time.time(), began)
            self._is_pending = written.is_pending or bool(written.problems)
            self._refreshed = now if is_due else self._refreshed
        read = {node: at for node, at in self._reported.items() if node in verdicts or node in self._silent}
        every = {node: verdict.health for node, verdict in verdicts.items()}
        self._log_round(round_of(now, time.time(), every, read, written, ASKED - before))

    def _log_round(self, gate_round: Round) -> None:
        self._tally.add(gate_round, self._silent)
        for line in gate_round.log_lines():
            log_line(line)

    def _fail(self, lines: Sequence[str], unproven: Collection[str] = ()) -> None:
        self._tally.add(None, self._silent.union(unproven))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def log_line(line: str) -> None:
    """Write a line to the gate's log."""
    sys.stdout.write(f"gate: {line}\n")
    sys.stdout.flush()


def command(option: argparse.Namespace, further: Sequence[str], keep: Path) -> list[str]:
    """The command line that evaluates a share."""
    own = [] if any(word.partition("=")[0] == "--k8s-gate" for word in further) else ["--k8s-gate", OBSERVE]
    where = [word for name, value in aws(option).items() for word in (f"--{name}", value)]
    every = ["--k8s-every", str(option.every)]
    return ["check", option.x, *EVALUATE, *every, "--k8s-keep", str(keep), *where, *own, *further]


def _own_options(further: Sequence[str]) -> argparse.Namespace:
    """The further options that also matter here; the evaluating process validates them."""
    of_gate = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, default in (
        ("--k8s-gate", OBSERVE),
        ("--k8s-max-tainted", LIMIT),
        ("--k8s-startup-taint", ""),
        ("--k8s-namespace", NAMESPACE),
        ("--nodes", ""),
        ("--exclude", ""),
    ):
        of_gate.add_argument(flag, default=default)
    options, _ = of_gate.parse_known_args(list(further))
    return options


def aws(option: argparse.Namespace) -> Mapping[str, str]:
    """The options that locate an EKS cluster in AWS."""
    return {key: value for key in AWS if (value := getattr(option, key))}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that is still running, so that it writes nothing any more."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
