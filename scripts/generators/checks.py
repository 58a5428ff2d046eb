"""Generates the documentation and indexes of the checks from the checks themselves: `scripts/generate`.

Writes docs/checks.md and docs/checks/, and what Slurm's scripts load: the index of checks and the parsed catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from clusterproof.plugins.catalog import rows, thresholds
from clusterproof.plugins.catalog.needs import Need, needs_of
from clusterproof.plugins.command_line.explain import compared_with, read_by, worst_first
from clusterproof.plugins.core.result import SUBSYSTEMS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks, when
from clusterproof.plugins.evaluation.index import FILE, written
from clusterproof.plugins.evaluation.routing import Route
from clusterproof.plugins.evaluation.rules import rules
from clusterproof.reports import skill_of
from tests.aws.cluster_faults import FAULTS as CLUSTER_FAULTS
from tests.benchmarks.pairwise.mesh_faults import MESH_FAULTS
from tests.benchmarks.pairwise.pair_faults import PAIR_FAULTS
from tests.checks.control_plane.kubernetes_node_faults import NODE_FAULTS
from tests.checks.control_plane.kubernetes_pod_faults import POD_FAULTS
from tests.checks.control_plane.kubernetes_storage_faults import STORAGE_FAULTS
from tests.checks.control_plane.slurm_faults import SLURM_FAULTS
from tests.faults import ALL_FAULTS
from tests.training_run.faults import FAULTS as RUN_FAULTS

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "checks.md"
HEAD = """# The checks

Each links to what it means, what it reads, what it can say, and the faults that prove it; in a terminal,
`clusterproof explain CHECK` says the same.
"""
OF_SUBSYSTEM = """
`…` stands for what differs from node to node. What a finding *needs* is what must be known besides the fact that it
is about ([and why](../../clusterproof/plugins/catalog/needs.toml)); whatever else is missing, it is still reported.
What could not be read is *incomplete* in every check, whether it is listed or not. All checks: [index](../checks.md).
"""
THRESHOLDS = """## Thresholds

The numbers that checks compare with, that evidence is read by, and by which a [watch](watch.md) says what lasts
([their home](../clusterproof/plugins/catalog/thresholds.toml)). A [policy](policy.md) overrules each by its name.

| name | number | unit | source |
|---|---|---|---|"""


def documents() -> dict[Path, str]:
    """The index and a page for each subsystem, by path."""
    by_subsystem = {subsystem: _of_subsystem(subsystem) for subsystem in SUBSYSTEMS}
    index = [HEAD, *(line for item in by_subsystem.items() for line in _contents(*item)), *_thresholds()]
    pages = {PATH: "\n".join(index) + "\n"}
    for subsystem, names in by_subsystem.items():
        lines = (line for name in names for line in (f"## {name}\n", *about_check(name)))
        pages[_page(subsystem)] = "\n".join([f"# {_title(subsystem)}: checks\n{OF_SUBSYSTEM}", *lines])
    return pages


def _of_subsystem(subsystem: str) -> list[str]:
    return [name for name, check in all_checks().items() if check.route.subsystem == subsystem]


def _page(subsystem: str) -> Path:
    return PATH.with_suffix("") / f"{subsystem}.md"


def _title(subsystem: str) -> str:
    return _TITLES.get(subsystem, subsystem.replace("_", " ").capitalize())


def _contents(subsystem: str, names: Iterable[str]) -> Iterator[str]:
    """A table of a subsystem's checks, each linking to its description."""
    yield from (
        f"## {_title(subsystem)}\n",
        "| check | looks at | runs | owner |",
        "|---|---|---|---|",
    )
    for name in names:
        check = all_checks()[name]
        link = f"[`{name}`](checks/{subsystem}.md#{name.replace('.', '')})"
        yield f"| {link} | {check.route.title} | {when(check)} | {_owner(check.route)} |"
    yield ""


def _thresholds() -> Iterator[str]:
    yield THRESHOLDS
    sources = rows.document("thresholds.toml")["sources"]
    for name, row in thresholds().items():
        yield f"| `{name}` | {row.value:g} | {row.unit} | {in_cell(sources.get(row.source, row.source))} |"


def in_cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def _owner(about: Route) -> str:
    return ", ".join(filter(None, (about.team, skill_of(about))))


def about_check(name: str) -> Iterator[str]:
    """The text below one check's heading."""
    check = all_checks()[name]
    about = check.route
    yield f"**{about.title}.** {about.meaning}\n"
    yield f"- **do**: {about.remedy}"
    yield f"- **see it by hand**: `{about.evidence}`"
    yield f"- **reads**: {read_by(check)}"
    yield f"- **runs**: {when(check)}; **owner**: {_owner(about)}"
    yield from (f"- **{rule.verdict}**: {rule.sentence}" for rule in worst_first(rules(check.function)))
    for row in compared_with(check):
        threshold, _, meaning = row.partition(": ")
        yield f"- **threshold** `{threshold}`: {meaning}"
    yield from (f"- **needs** {_facts(need)}: {need.reason} ({need.kind})" for need in needs_of(name))
    yield f"- **proven on**: {_faults(name)}\n"


def _facts(need: Need) -> str:
    return ", ".join(f"`{fact}`" if "." in fact or fact.isidentifier() else fact for fact in need.facts)


def _faults(name: str) -> str:
    if all_checks()[name].is_of_cluster:
        return _faults_of_cluster(name)
    if all_checks()[name].needs_pairs:
        return _faults_of_pairs(name)
    if all_checks()[name].is_of_run:
        return _faults_of_runs(name)
    by_verdict = [
        f"{fault.name} ({fault.expect[name].value})"
        for fault in ALL_FAULTS
        if name in fault.expect and (next(iter(fault.expect)) == name or fault.expect[name] in _FINDINGS)
    ]
    return "; ".join(by_verdict) or "none"


def _faults_of_pairs(name: str) -> str:
    faults = (
        f"{fault.name} ({verdict.value})"
        for fault in (*PAIR_FAULTS, *MESH_FAULTS)
        for check, verdict in fault.expect.items()
        if check.partition("@")[0] == name
    )
    return "; ".join(faults) or "none"


def _faults_of_runs(name: str) -> str:
    faults = (f"{fault.name} ({fault.expect[name].value})" for fault in RUN_FAULTS if name in fault.expect)
    return "; ".join(faults) or "none"


def _faults_of_cluster(name: str) -> str:
    subsystem, _, check = name.partition(".")
    by_data = [
        f"{fault.name} ({fault.expect[check].value})"
        for fault in (*SLURM_FAULTS, *NODE_FAULTS, *POD_FAULTS, *STORAGE_FAULTS)
        if check in fault.expect
    ]
    if by_data:
        return "; ".join(by_data)
    faults = [
        f"{put.__name__.replace('_', ' ')} ({expected[check].value})"
        for put, (expected, _) in CLUSTER_FAULTS.items()
        if subsystem == "control_plane" and expected.get(check) in _FINDINGS
    ]
    return "; ".join(faults) or "clusters of `tests/aws`"


_TITLES = {"gpu": "GPU", "run": "Training run"}
_FINDINGS = (Verdict.FAIL, Verdict.CONCERN)


if __name__ == "__main__":
    PATH.with_suffix("").mkdir(exist_ok=True)
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
    Path(FILE).write_text(written(), encoding="utf-8")
    Path(rows.PARSED).write_text(rows.written(), encoding="utf-8")
