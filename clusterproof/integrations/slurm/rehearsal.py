"""What a script would find on this node: run like the script, but without recording or acting on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from clusterproof.integrations.slurm.call import PROGRAM
from clusterproof.integrations.slurm.checking import OCCASIONS, NoVerdict, check
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.state import RUNTIME_FOLDER, State
from clusterproof.integrations.slurm.verdict import cursor_of

ENDS_S = 120.0  # more than twice the longest deadline
# Of the user's environment; slurmd passes its scripts no more.
KEPT_VARIABLES = ("PATH", "SLURM_CONF", "SLURMD_NODENAME")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What one check found with one verdict. `cause` is the same text for all results with one cause."""

    check: str
    verdict: str
    message: str
    cause: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One script: the results of each of its checks, or why there is none (`broken`), and the duration.

    `said` are problems of the installation itself, which cost time.
    """

    occasion: str
    deadline_s: float
    took_s: float
    evaluated: tuple[Evaluated, ...] = ()
    instance_type: str = ""
    broken: str = ""
    said: tuple[str, ...] = ()

    def of(self, verdict: str) -> tuple[Evaluated, ...]:
        """The checks with this verdict."""
        return tuple(evaluated for evaluated in self.evaluated if evaluated.verdict == verdict)

    @property
    def is_late(self) -> bool:
        """Whether the script itself would have exceeded its deadline."""
        return self.took_s >= self.deadline_s


def rehearsed(occasion: str, settings: Settings) -> Rehearsal:
    """Start Python as the script does, and wait until all is evaluated; the script's deadline is not enforced."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    command = [sys.executable, "-I", "-c", PROGRAM, "rehearse", occasion]
    deadline_s, began = settings.deadline_of(occasion), time.monotonic()
    try:
        ran = subprocess.run(command, capture_output=True, timeout=ENDS_S, check=False, env=environment, cwd="/")
        printed = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return Rehearsal(occasion, deadline_s, ENDS_S, broken=f"no answer within {ENDS_S:.0f} s")
    except ValueError:
        stderr = ran.stderr.decode("utf-8", "replace").strip()[-500:]
        return Rehearsal(
            occasion, deadline_s, time.monotonic() - began, broken=stderr or f"ended with {ran.returncode}"
        )
    took_s = time.monotonic() - began
    evaluated = tuple(Evaluated(**row) for row in printed["evaluated"])
    return Rehearsal(
        occasion, deadline_s, took_s, evaluated, printed["instance_type"], printed["broken"], tuple(printed["said"])
    )


def rehearse(occasion: str, settings: Settings) -> None:
    """Check as the script does, and print what `rehearsed` parses."""
    results: list[Any] = []
    lines: list[str] = []
    cursor = cursor_of(State(settings.state, RUNTIME_FOLDER).read("cursor").get("cursor"))
    broken = ""
    try:
        check(OCCASIONS[occasion], settings, settings.deadline_of(occasion), cursor, lines.append, results.append)
    except NoVerdict as problem:
        broken = str(problem)
    evaluated = [
        Evaluated(part.check, part.verdict.value, part.message, part.cause)
        for result in results
        for part in result.by_verdict
    ]
    instance_type = next((result.instance_type for result in results), "")
    rehearsal = {
        "evaluated": [asdict(result) for result in evaluated],
        "instance_type": instance_type,
        "broken": broken,
        "said": lines,
    }
    print(json.dumps(rehearsal), flush=True)  # noqa: T201 - read by `rehearsed`
