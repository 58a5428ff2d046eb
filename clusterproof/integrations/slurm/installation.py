"""`--check-installation`: what Slurm's scripts can and cannot evaluate on this node, without changing anything.

Exit codes: 0 all in order · 1 something needs fixing · 10 nothing does, but something cannot be evaluated here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from clusterproof.integrations.slurm import slurm_conf
from clusterproof.integrations.slurm.checking import OCCASIONS
from clusterproof.integrations.slurm.installation_lines import (
    InstallationLine,
    LineStatus,
    Section,
    count,
    fine,
    rendered,
    to_fix,
    unknown,
)
from clusterproof.integrations.slurm.rehearsal import Evaluated, Rehearsal, rehearsed
from clusterproof.integrations.slurm.roots import distrust
from clusterproof.integrations.slurm.settings import FILE, Settings, SettingsError, configured_names, read_settings
from clusterproof.integrations.slurm.state import RUNTIME_FOLDER, why_unusable
from clusterproof.integrations.slurm.verdict import shortened
from clusterproof.plugins.core import __version__
from clusterproof.plugins.evidence.expectation import UNKNOWN_TYPE
from clusterproof.plugins.evidence.kernel_log.wording import RECORDS_LOST
from clusterproof.plugins.evidence.storage.facts import is_network

PACKAGE = Path(__file__).resolve().parents[2]
MENDED, NOT_EVALUATED = 1, 10
MAX_SHOWN = 200  # characters of a message
NAMES = {"prolog": "prolog", "epilog": "epilog", "health-check": "health check"}
MODES = {
    "observe": "a fail is logged, and drains nothing",
    "drain": "a fail drains the node",
    "off": "the scripts do nothing",
}


def check_installation(node: str) -> int:
    """Print the state of this node; returns the exit code."""
    sections = [Section(f"clusterproof {__version__} on {node}: nothing is changed here", tuple(_program()))]
    try:
        settings, configured = read_settings(), configured_names()
    except SettingsError as wrong:
        sections.append(Section("settings", (to_fix(f"{wrong}; until then the scripts do nothing"),)))
        return _shown(sections)
    report = slurm_conf.slurm_report_of(node)
    rehearsals = tuple(rehearsed(occasion, settings) for occasion in OCCASIONS)
    sections += [
        Section("settings", tuple(_settings(settings, configured))),
        Section("checks", tuple(_checks(rehearsals, settings))),
        Section("resume", tuple(_resume(rehearsals[-1], settings, slurm_conf.why_nobody_resumes(report, settings)))),
        Section("state", tuple(_state(settings))),
        Section("Slurm", tuple(slurm_conf.lines_of(node, report, settings))),
    ]
    return _shown(sections)


def _shown(sections: list[Section]) -> int:
    """Print the sections and the summary; returns the exit code."""
    to_mend, unknowns = count(sections, LineStatus.MEND), count(sections, LineStatus.OPEN)
    counts = [f"{number} {what}" for number, what in ((to_mend, "to mend (!)"), (unknowns, "open (?)")) if number]
    print(f"{rendered(sections)}\n\n{', '.join(counts) or 'all in order'}", flush=True)  # noqa: T201 - the screen
    return MENDED if to_mend else NOT_EVALUATED if unknowns else 0


def _program() -> Iterator[InstallationLine]:
    number = ".".join(map(str, sys.version_info[:3]))
    yield fine(f"{sys.executable} ({number}), {PACKAGE}", "Python")
    why = distrust(str(PACKAGE))
    if why:
        yield to_fix(f"{why}; expected a folder that only root writes: root runs what lies there", "Python")
    kind = _file_system(PACKAGE)
    if is_network(kind):
        yield to_fix(f"{PACKAGE} is on {kind}; expected a local disk: a prolog waits when a shared one does", "Python")
    if os.geteuid() != 0:
        yield to_fix(f"this user is {os.geteuid()}; expected root, as whom slurmd runs its scripts", "user")


def _settings(settings: Settings, configured: frozenset[str]) -> Iterator[InstallationLine]:
    yield fine(f"{settings.mode}: {MODES[settings.mode]}", "mode")
    values = settings.as_toml()
    own = [f"{name} = {value}" for name, value in values.items() if name in configured]
    rest = [f"{name} = {value}" for name, value in values.items() if name not in configured]
    if own:
        yield fine(", ".join(own), "set")
    yield fine(", ".join(rest), "by default")
    yield fine(f"{FILE}" if configured else f"{FILE} is not there, or sets nothing", "file")


def _checks(rehearsals: Iterable[Rehearsal], settings: Settings) -> Iterator[InstallationLine]:
    known = tuple(rehearsals)
    for line in dict.fromkeys(line for rehearsal in known for line in rehearsal.said):
        yield to_fix(f"{line}; expected an index of these checks: install the wheel anew", "index")
    for rehearsal in known:
        yield from _time(rehearsal, settings)
    instance_type = next((rehearsal.instance_type for rehearsal in known if rehearsal.instance_type), "")
    yield fine(instance_type or "not known", "instance type")
    for occasions, names in _by_occasions(known, "pass", "concern", "fail").items():
        yield fine(" ".join(names), f"evaluated {occasions}" if occasions else "evaluated")
    for verdict in ("fail", "concern", "incomplete", "not applicable"):
        yield from findings(known, verdict, settings)


def _time(rehearsal: Rehearsal, settings: Settings) -> Iterator[InstallationLine]:
    """How many checks there were, and their duration."""
    label = NAMES[rehearsal.occasion]
    if rehearsal.broken:
        yield to_fix(f"no verdict: {shortened(rehearsal.broken, 500)}; expected verdicts", label)
        return
    parts = [
        f"{len(rehearsal.of(word))} {word}" for word in ("pass", "fail", "concern", "incomplete") if rehearsal.of(word)
    ]
    took = f"{rehearsal.took_s:.2f} s of {rehearsal.deadline_s:g} s"
    out = len(rehearsal.of("not applicable"))
    checks = len({evaluated.check for evaluated in rehearsal.evaluated}) - out
    summary = f"{took}: {checks} checks evaluated ({', '.join(parts)}), {out} not applicable"
    if not rehearsal.is_late:
        yield fine(summary, label)
        return
    drains = settings.at_deadline == "drain" and settings.drains and rehearsal.occasion != "health-check"
    late = "the node is drained" if drains else "nothing is evaluated"
    yield to_fix(f"{summary}; expected less: at the deadline {late}", label)


def _by_occasions(rehearsals: tuple[Rehearsal, ...], *verdicts: str) -> dict[str, list[str]]:
    """The checks with these verdicts, in order, by the scripts that evaluate them: none if all do."""
    by_check: dict[str, list[str]] = {}
    for rehearsal in rehearsals:
        for evaluated in rehearsal.evaluated:
            if evaluated.verdict in verdicts:
                by_check.setdefault(evaluated.check, []).append(rehearsal.occasion)
    folded: dict[str, list[str]] = {}
    for check, occasions in by_check.items():
        of_a_job = [occasion for occasion in dict.fromkeys(occasions) if occasion != "health-check"]
        folded.setdefault("" if len(of_a_job) != 1 else f"({of_a_job[0]})", []).append(check)
    return folded


def findings(rehearsals: tuple[Rehearsal, ...], verdict: str, settings: Settings) -> Iterator[InstallationLine]:
    """The findings of one kind; equal ones merged, naming the scripts if not all have it."""
    by_message: dict[tuple[str, str], list[str]] = {}
    for rehearsal in rehearsals:
        for evaluated in rehearsal.of(verdict):
            by_message.setdefault((evaluated.message, evaluated.check), []).append(rehearsal.occasion)
    folded: dict[tuple[str, str], list[str]] = {}
    for (message, check), occasions in by_message.items():
        where = "" if "health-check" in occasions else f" ({', '.join(NAMES[occasion] for occasion in occasions)})"
        folded.setdefault((message, where), []).append(check)
    for (message, where), checks in folded.items():
        text = shortened(message.replace("\n", "; "), MAX_SHOWN)  # one line per finding
        finding = f"{' '.join(checks)}{where}: {text}"
        if verdict == "fail":
            does = "drains at the next job" if settings.drains else "would drain"
            yield to_fix(f"{finding}: this {does}", "fails")
        else:
            yield fine(finding, verdict)


def _resume(health_check: Rehearsal, settings: Settings, nobody: str) -> Iterator[InstallationLine]:
    """Whether the scripts ever resume a node that they drained."""
    mode = "" if settings.drains else "in drain mode "
    if nobody:
        wanted = "resume = true and a health check that reaches drained nodes, or an administrator resumes each"
        line = to_fix if settings.drains and settings.health_check.resume else fine
        yield line(f"{mode}a drained node is never resumed: {nobody}; expected {wanted}")
    incomplete = health_check.of("incomplete")
    if not incomplete:
        if not nobody and not health_check.broken:
            yield fine(f"{mode}a drained node is resumed once all that is evaluated here passes in a health check")
        return
    names = " ".join(evaluated.check for evaluated in incomplete)
    yield unknown(
        f"{mode}a drained node is resumed only once every check that applies passes in a health check. Here it stays "
        f"drained, whatever is fixed, for as long as these cannot be evaluated: {names}"
    )
    helps: dict[str, list[str]] = {}
    for evaluated in incomplete:
        helps.setdefault(_remedy(evaluated), []).append(evaluated.check)
    for remedy, checks in helps.items():
        yield fine(f"{remedy}: {' '.join(checks)}", "what helps")


def _remedy(evaluated: Evaluated) -> str:
    """How to make a check evaluable here, or exclude it."""
    if evaluated.check == "node.uptime_settled":
        return "asking again when the node has been up for longer"
    if evaluated.cause == UNKNOWN_TYPE:
        return f'instance_type = "…" in {FILE}, or [expect] in a policy (docs/policy.md)'
    if evaluated.cause == RECORDS_LOST:
        return "asking again after the first run of a script: from there on, only what is logged since then is read"
    return 'what they lack (above), or [disabled."…"] for each in a policy, until a date (docs/policy.md)'


def _state(settings: Settings) -> Iterator[InstallationLine]:
    why, not_in_run = why_unusable(settings.state), why_unusable(RUNTIME_FOLDER)
    if not why:
        yield fine(f"{settings.state} can be used")
    elif not not_in_run:
        yield to_fix(f"{why}; expected a folder that only root writes: what is remembered is lost at a reboot")
    if not_in_run:
        drains = "what cannot be remembered drains nothing" if settings.drains else "each job then checks anew"
        yield to_fix(
            f"{not_in_run}; expected a folder that only root writes: {drains if why else 'it keeps what that loses'}"
        )


def _file_system(folder: Path) -> str:
    """The file system type of a folder; empty if unknown."""
    try:
        rows = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return ""
    above = {str(path) for path in (folder, *folder.parents)}
    holding = [(len(row[1]), number, row[2]) for number, row in enumerate(rows) if len(row) > 2 and row[1] in above]
    return max(holding)[2] if holding else ""
