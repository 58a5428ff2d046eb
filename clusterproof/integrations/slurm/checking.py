"""Runs the checks on this machine, in this process: what its own probe returns, evaluated by the packaged checks alone.

A rehearsal is what a script would find, run as the script runs, but neither recorded nor acted on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.job import node_of
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.standby import StandBy
from clusterproof.integrations.slurm.state import BESIDE, State
from clusterproof.integrations.slurm.verdict import Cursor, Finding, Run, cursor_of, cut_short
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.evaluation.index import Stale, collectors_of, load, make_index, of_occasions, read_index

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from clusterproof.plugins.core.evidence import NodeEvidence
    from clusterproof.plugins.core.policy import Policy
    from clusterproof.plugins.core.result import Result
    from clusterproof.plugins.evaluation.index import Entry

COLLECTOR_S = 5.0  # the suite's own deadline of one collector
ASIDE_S = 2.0  # of the deadline, for what is not evidence: the start, the end of what hangs, the verdicts
NVML = 3  # times the timeout: the longest that any evidence may take
ALWAYS = frozenset({"boot", "platform"})  # what every report says of a node, whatever is checked


class NoVerdict(Exception):  # noqa: N818 - an outcome, not an error
    """There are no verdicts; the text says why."""


def timeout_s(deadline_s: float) -> float:
    """How long one kind of evidence may take, so that all of it comes before the deadline."""
    return max(0.1, min(COLLECTOR_S, (deadline_s - ASIDE_S) / NVML))


def check(
    occasions: tuple[str, ...],
    settings: Settings,
    deadline_s: float,
    cursor: Cursor | None,
    say: Callable[[str], object] = str,
    each: Callable[[Result], object] = id,
    nvml: bytes = b"",
) -> Run:
    """Run the checks of these occasions, and call `each` with their results; `say` gets what is wrong with the suite.

    `nvml` is the code of the part of nvidia-ml-py that is used, if that is kept. Raises NoVerdict.
    """
    began = time.monotonic()
    here = StandBy(nvml)
    collector_s = timeout_s(deadline_s)
    try:
        index = _index(say)
        entries = tuple(of_occasions(index, occasions).values())
        policy = policy_of(settings, frozenset(index))
        here.begin(collectors_of(entries) | ALWAYS, options_of(collector_s, policy, cursor))
        evaluate = prepared(entries, occasions, settings, policy)
        evidence = here.evidence(node_of(os.environ), deadline_s)
    finally:
        here.end()
    everything = evaluate(evidence)
    for result in everything:
        each(result)
    results = [result for result in everything if result.verdict.value != "not applicable"]
    if not results:
        raise NoVerdict("no check applies")
    words = (Finding(one.check, one.verdict.value, one.message) for result in results for one in result.by_verdict)
    findings = [finding for finding in words if finding.verdict != "pass"]
    log = evidence.collectors.get("kernel_log")
    return Run(
        boot_id(),
        since_boot_s(),
        round(time.monotonic() - began, 3),
        len(results),
        tuple(findings if collector_s >= COLLECTOR_S else map(cut_short, findings)),
        cursor,
        cursor_of(log.value.get("cursor")) if log and isinstance(log.value, dict) else None,
    )


def evaluated_by_the_log(check: str) -> bool:
    """Whether a check reads the kernel log; an unknown one may."""
    entry = _index(str).get(check)
    return entry is None or "kernel_log" in entry["collectors"]


def _index(say: Callable[[str], object]) -> dict[str, Entry]:
    try:
        return read_index()
    except Stale as why:
        say(f"{why}; every check is loaded, which takes longer")
        return make_index()


def policy_of(settings: Settings, checks: frozenset[str]) -> Policy:
    """The site's policy, whose rules are of these checks. Raises NoVerdict."""
    from clusterproof.plugins.core.policy import NO_POLICY, OWN_FILE, PYPROJECT

    if not settings.policy and not any(os.path.isfile(name) for name in (OWN_FILE, PYPROJECT)):
        return NO_POLICY
    from pathlib import Path

    from clusterproof.plugins.core.cluster import InventoryError
    from clusterproof.plugins.policy import find_policy, refuse_unknown

    try:
        policy = find_policy(settings.policy or None, Path.cwd())
        if policy.disabled or policy.readings:
            refuse_unknown(policy, checks)
    except InventoryError as wrong:
        raise NoVerdict(f"ERROR: {wrong}") from None
    return policy


def options_of(collector_s: float, policy: Policy, cursor: Cursor | None) -> ProbeOptions:
    """How the probe runs here."""
    return ProbeOptions(
        collector_s=collector_s, checkpoints=policy.checkpoints, mounts=policy.mounts, log_cursor=cursor or NO_CURSOR
    )


def prepared(
    entries: Iterable[Entry], occasions: tuple[str, ...], settings: Settings, policy: Policy
) -> Callable[[NodeEvidence], list[Result]]:
    """What evaluates the node's evidence, with all loaded that this takes. Raises NoVerdict."""
    from clusterproof.plugins.core.cluster import Cluster, Target
    from clusterproof.plugins.evaluation.evaluate import verdict_on
    from clusterproof.plugins.evidence.node import HEALTH_CHECK
    from clusterproof.plugins.evidence.nodes import nodes

    try:
        checks = [load(entry) for entry in entries]
    except Exception as problem:  # its file is code: anything may break in it
        raise NoVerdict(f"a check cannot be loaded: {type(problem).__name__}: {problem}") from None
    occasion = occasions[0] if len(occasions) == 1 else HEALTH_CHECK  # as `-m` has it for rules that differ

    def evaluate(data: NodeEvidence) -> list[Result]:
        target = Target(data.node, instance_type=settings.instance_type, expect=policy.expect)
        cluster = Cluster("local", "local", (target,))
        node = nodes(cluster, {data.node: data}, occasion, policy)[data.node]
        return [verdict_on(policy, check, node) for check in checks]

    return evaluate


OCCASIONS = {"prolog": ("prolog",), "epilog": ("epilog",), "health-check": ("prolog", "epilog")}
ENDS_S = 120.0  # more than twice the longest deadline
KEPT = ("PATH", "SLURM_CONF", "SLURMD_NODENAME")  # of who types the command; slurmd gives its scripts no more
PROGRAM = "from clusterproof.integrations.slurm.main import main; main()"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What one check said. `cause` is the same text wherever several have one cause."""

    check: str
    verdict: str
    message: str
    cause: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One script: what each of its checks said, or why none did (`broken`), and the time from start to end.

    `said` is what is wrong with the installation itself, and costs time.
    """

    occasion: str
    deadline_s: float
    took_s: float
    evaluated: tuple[Evaluated, ...] = ()
    instance_type: str = ""
    broken: str = ""
    said: tuple[str, ...] = ()

    def of(self, verdict: str) -> tuple[Evaluated, ...]:
        """The checks that said this."""
        return tuple(evaluated for evaluated in self.evaluated if evaluated.verdict == verdict)

    @property
    def is_late(self) -> bool:
        """Whether the script itself would have given up before."""
        return self.took_s >= self.deadline_s


def rehearsed(occasion: str, settings: Settings) -> Rehearsal:
    """Start Python as the script does, and wait until all is evaluated; the script's deadline ends nothing here."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    command = [sys.executable, "-I", "-c", PROGRAM, "rehearse", occasion]
    deadline_s, began = deadline_of(occasion, settings), time.monotonic()
    try:
        ran = subprocess.run(command, capture_output=True, timeout=ENDS_S, check=False, env=environment, cwd="/")
        data = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return Rehearsal(occasion, deadline_s, ENDS_S, broken=f"no answer within {ENDS_S:.0f} s")
    except ValueError:
        said = ran.stderr.decode("utf-8", "replace").strip()[-500:]
        return Rehearsal(occasion, deadline_s, time.monotonic() - began, broken=said or f"ended with {ran.returncode}")
    took_s = time.monotonic() - began
    evaluated = tuple(Evaluated(**one) for one in data["evaluated"])
    return Rehearsal(
        occasion, deadline_s, took_s, evaluated, data["instance_type"], data["broken"], tuple(data["said"])
    )


def rehearse(occasion: str, settings: Settings) -> None:
    """Check as the script does, and print what `rehearsed` reads."""
    heard: list[Any] = []
    said: list[str] = []
    cursor = cursor_of(State(settings.state, BESIDE).read("cursor").get("cursor"))
    broken = ""
    try:
        check(OCCASIONS[occasion], settings, deadline_of(occasion, settings), cursor, said.append, heard.append)
    except NoVerdict as problem:
        broken = str(problem)
    evaluated = [Evaluated(result.check, result.verdict.value, result.message, result.cause) for result in heard]
    instance_type = next((result.instance_type for result in heard), "")
    data = {
        "evaluated": [asdict(result) for result in evaluated],
        "instance_type": instance_type,
        "broken": broken,
        "said": said,
    }
    print(json.dumps(data), flush=True)  # noqa: T201 - read by `rehearsed`


def deadline_of(occasion: str, settings: Settings) -> float:
    """Seconds from the start of a script to its own deadline."""
    return settings.health_check.deadline_s if occasion == "health-check" else settings.deadline_s
