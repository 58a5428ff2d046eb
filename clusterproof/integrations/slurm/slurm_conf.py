"""Whether slurm.conf and this node's settings in Slurm fit the scripts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterproof.integrations.slurm import control
from clusterproof.integrations.slurm.control import NodeState, SlurmError
from clusterproof.integrations.slurm.installation_lines import InstallationLine, fine, to_fix
from clusterproof.integrations.slurm.records import VALID_S
from clusterproof.integrations.slurm.settings import Settings

SCRIPTS = {"Prolog": "prolog", "Epilog": "epilog", "HealthCheckProgram": "health-check"}
LIMITS_S = {"Prolog": 15, "Epilog": 15}  # the scripts answer within 9 s, and slurmd kills them later than this
HEALTH_CHECK_S = 60  # likewise: it answers within 55 s
STARTS_S = {"BatchStartTimeout": 10, "MessageTimeout": 10}  # Slurm's own defaults: a prolog may take 9 s of them
NO_LIMIT = 65534  # Slurm's value for no limit
SEES_DRAINED = frozenset({"ANY", "IDLE"})  # values of HealthCheckNodeState that include drained nodes
SEES_IN_USE = frozenset({"ALLOC", "MIXED"})  # … and nodes in use, as ANY does
CONFIGLESS = "/run/slurm/conf/slurm.conf"  # sent by the controller, with scripts named without a folder
HOME = Path("/opt/clusterproof/bin")  # where a script in another place looks for Python
MAX_BYTES = 65536
_SECONDS = re.compile(r"(\d+)(?: sec)?")


@dataclass(frozen=True, slots=True)
class SlurmReport:
    """What Slurm reports about itself and this node; `problem` if it reports nothing."""

    config: Mapping[str, str]
    node: NodeState | None = None
    problem: str = ""


def slurm_report_of(name: str) -> SlurmReport:
    """Query Slurm, which changes nothing there."""
    try:
        config = control.config()
    except SlurmError as problem:
        return SlurmReport({}, None, str(problem))
    try:
        return SlurmReport(config, control.node_state(name))
    except SlurmError as problem:
        return SlurmReport(config, None, str(problem))


def lines_of(name: str, report: SlurmReport, settings: Settings) -> Iterator[InstallationLine]:
    """The lines about Slurm."""
    if not report.config:
        yield to_fix(f"{report.problem}; expected slurmctld's answer", "slurmctld")
        return
    yield fine(f"{report.config.get('SLURM_VERSION', 'of an unknown version')} answers", "slurmctld")
    yield from _lines_of_node(name, report)
    named = [keyword for keyword in SCRIPTS if names_ours(report.config, keyword)]
    for keyword in SCRIPTS:
        yield from _of_script(keyword, report.config, is_any=bool(named))
    if "Prolog" in named:
        yield from _of_flags(report.config, settings)
    if "HealthCheckProgram" in named:
        yield from _of_health_check(report.config, is_relied_on=settings.drains and len(named) > 1)
    elif named and settings.drains:
        not_ours = "not ours: nobody then says how many nodes are drained, and a prolog and an epilog drain nothing"
        yield to_fix(f"{not_ours}; expected clusterproof-health-check", "HealthCheckProgram")
    yield from _of_times(report.config, named)


def why_nobody_resumes(report: SlurmReport, settings: Settings) -> str:
    """Why no health check will ever see this node once it is drained; empty if one will."""
    if not settings.health_check.resume:
        return "resume = false in the settings"
    if not report.config:
        return ""
    if not names_ours(report.config, "HealthCheckProgram"):
        return "HealthCheckProgram is not clusterproof-health-check"
    if _seconds(report.config.get("HealthCheckInterval", "")) == 0:
        return "HealthCheckInterval is 0"
    states = report.config.get("HealthCheckNodeState", "")
    seen = set(states.upper().split(","))
    return f"HealthCheckNodeState is {states}" if states and seen.isdisjoint(SEES_DRAINED) else ""


def names_ours(config: Mapping[str, str], keyword: str) -> bool:
    """Whether slurm.conf names our script there, directly or in a script or folder of the site's."""
    return any(_calls(file, SCRIPTS[keyword]) for file in _files(config, keyword))


def _lines_of_node(name: str, report: SlurmReport) -> Iterator[InstallationLine]:
    user = report.config.get("SlurmdUser", "root")
    if user.partition("(")[0] != "root":
        yield to_fix(f"SlurmdUser is {user}; expected root, who may read the node and drain it", "scripts")
    if report.node is None:
        yield to_fix(
            f"{report.problem}; expected a node called {name} (or SLURMD_NODENAME=… before this command)", "node"
        )
        return
    state = "+".join(sorted(report.node.flags))
    why = f" ({report.node.reason})" if report.node.is_unavailable and report.node.reason else ""
    known = f"{name} is {state}{why}, of partition {', '.join(report.node.partitions) or 'none'}"
    may = "root here may drain and resume it by scontrol" if os.geteuid() == 0 else "this user may not drain it"
    yield fine(f"{known}; {may}", "node")


def _of_script(keyword: str, config: Mapping[str, str], *, is_any: bool) -> Iterator[InstallationLine]:
    script = f"clusterproof-{SCRIPTS[keyword]}"
    value = ", ".join(_values(config, keyword))
    if not value:
        problem = f"not set; expected the path of {script}"
        yield to_fix(problem, keyword) if not is_any else fine(f"not set: {script} does not run", keyword)
        return
    files = _files(config, keyword)
    if not files:
        yield to_fix(f"{value}: there is no such file on this node; expected one, or each job drains the node", keyword)
    for file in files:
        if not os.access(file, os.X_OK):
            yield to_fix(f"{file} cannot be executed; expected a script that can", keyword)
    ours = [file for file in files if _calls(file, SCRIPTS[keyword])]
    if files and not ours:
        yield to_fix(f"{value}, which does not name {script}; expected it there", keyword)
    for file in ours:
        yield _of_file(file, keyword)


def _of_file(file: Path, keyword: str) -> InstallationLine:
    """Whether a named script uses this installation's Python."""
    if not _is_script(file, SCRIPTS[keyword]):
        return fine(f"{file}, which names clusterproof-{SCRIPTS[keyword]}", keyword)
    own_python = file.parent / "python"
    python = own_python if os.access(own_python, os.X_OK) else HOME / "python"
    if not os.access(python, os.X_OK):
        return to_fix(f"{file} finds no Python beside it nor in {HOME}; expected one, or it gives no verdict", keyword)
    if python.parent.resolve() != Path(sys.executable).parent.resolve():
        return to_fix(f"{file} runs {python}; expected {sys.executable}, whose installation this is", keyword)
    return fine(f"{file}, with the Python of this installation", keyword)


def _of_flags(config: Mapping[str, str], settings: Settings) -> Iterator[InstallationLine]:
    flags = config.get("PrologFlags", "")
    if "runinjob" in flags.lower():
        within = "prolog and epilog run within the job's limits, and see its GPUs alone"
        yield to_fix(f"{flags}: {within}; expected no RunInJob", "PrologFlags")
    elif "alloc" not in flags.lower():
        problem = f"{flags or 'not set'}: a prolog runs when a job's first step reaches the node; better Alloc"
        yield fine(problem, "PrologFlags")
    else:
        yield fine(flags, "PrologFlags")
    if settings.drains and "nohold_on_prolog_fail" not in config.get("SchedulerParameters", ""):
        problem = "without nohold_on_prolog_fail: a batch job whose prolog drains a node is held"
        yield fine(problem, "SchedulerParameters")


def _of_health_check(config: Mapping[str, str], *, is_relied_on: bool) -> Iterator[InstallationLine]:
    """The line on whether the health check runs, and often enough if prologs and epilogs rely on its records."""
    interval, states = config.get("HealthCheckInterval", ""), config.get("HealthCheckNodeState", "")
    seconds, seen = _seconds(interval), set(states.upper().split(","))
    if seconds == 0:
        yield to_fix("0: it never runs; expected 300", "HealthCheckInterval")
    elif is_relied_on and seconds and seconds + HEALTH_CHECK_S > VALID_S:
        late = "a prolog and an epilog drain nothing an hour after it has run"
        yield to_fix(f"{interval}: {late}; expected 300", "HealthCheckInterval")
    else:
        yield fine(f"{interval}, on nodes that are {states or 'not set'}", "HealthCheckInterval")
    if is_relied_on and states and "ANY" not in seen and not seen >= SEES_IN_USE:
        late = "after an hour of use its prologs and epilogs drain nothing"
        yield to_fix(f"{states}: it does not run on a node in use, and {late}; expected ANY", "HealthCheckNodeState")
    limit_s = _seconds(config.get("HealthCheckTimeout", ""))
    if limit_s is not None and limit_s < HEALTH_CHECK_S:
        yield to_fix(f"HealthCheckTimeout is {limit_s} s; expected {HEALTH_CHECK_S} s or more", "HealthCheckProgram")


def _of_times(config: Mapping[str, str], named: list[str]) -> Iterator[InstallationLine]:
    for keyword, least_s in LIMITS_S.items():
        setting = f"{keyword}Timeout" if f"{keyword}Timeout" in config else "PrologEpilogTimeout"
        limit_s = _seconds(config.get(setting, ""))
        if keyword in named and limit_s is not None and limit_s < least_s:
            yield to_fix(f"{setting} is {limit_s} s; expected {least_s} s or more, or none", keyword)
    for setting, least_s in STARTS_S.items():
        limit_s = _seconds(config.get(setting, ""))
        if "Prolog" in named and limit_s is not None and limit_s < least_s:
            yield to_fix(f"{setting} is {limit_s} s; expected {least_s} s or more, as a prolog may take 9 s", "Prolog")


def _seconds(value: str) -> int | None:
    """Parse `300 sec`, `300`; None if there is no number, or it means no limit."""
    match = _SECONDS.fullmatch(value)
    return int(match[1]) if match and int(match[1]) < NO_LIMIT else None


def _values(config: Mapping[str, str], keyword: str) -> list[str]:
    """The values set; newer versions number their prologs."""
    named = re.compile(rf"{keyword}(\[\d+\])?")
    return [value for name, value in config.items() if value and named.fullmatch(name)]


def _files(config: Mapping[str, str], keyword: str) -> list[Path]:
    """The files; a path may be a pattern, and is relative to slurm.conf's folder."""
    files: list[Path] = []
    for pattern in _values(config, keyword):
        patterns = [f"{folder}/{pattern}" for folder in ([""] if pattern.startswith("/") else _folders(config))]
        matches = (sorted(Path("/").glob(pattern.lstrip("/"))) for pattern in patterns)
        files += next(filter(None, matches), [])
    return [file for file in files if file.is_file()]


def _folders(config: Mapping[str, str]) -> list[str]:
    """Where slurm.conf may be on this node, in slurmd's order; the controller's own place last."""
    files = (os.environ.get("SLURM_CONF", ""), CONFIGLESS, config.get("SLURM_CONF", ""))
    return [str(Path(file).parent) for file in files if file.startswith("/")]


def _calls(file: Path, script: str) -> bool:
    return _is_script(file, script) or f"clusterproof-{script}" in _text(file)


def _is_script(file: Path, script: str) -> bool:
    """Whether it is our script, a link to it or a copy."""
    return f"\noccasion={script}\n" in _text(file)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
