"""The actions of a run, in one line and as commands to copy: `REPLACE gpu003 (row_remap) · 2 fit`.

The commands are specific to the cluster: to perform an action, and to run checks again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import join, quote

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.cluster import (
    INSTANCE_ID,
    Cluster,
    Target,
    is_of_hyperpod,
    is_of_kubernetes,
    is_of_slurm,
)
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.result import HARDWARE_ACTIONS, Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict
from clusterproof.reports import (
    BROKEN,
    CANNOT_REACH,
    COMMON_CAUSE,
    LOOK_AT,
    NOT_PROVEN,
    about,
    action_and_reason,
    action_rank,
    cut_of,
    failed_by_all,
    subject_in_a_word,
    worst_of,
)
from clusterproof.reports.findings import parts, shortened, with_verdict
from clusterproof.reports.run import Run

MAX_NODES = 80  # characters of a nodeset
MIN_TO_SHARE = 3  # failed nodes
MAX_REASONS = 2
MAX_REASON = 60  # characters of one
_AROUND = {  # an action as a sentence: the text before and after the nodes
    COMMON_CAUSE: ("find the common cause on", ""),
    "replace": ("replace", ""),
    "reset or reboot": ("reset or reboot", ""),
    "fix configuration": ("fix the configuration of", ""),
    "fix code": ("fix the code of", ""),
    "restore service": ("restore the service on", ""),
    "clean up": ("clean up", ""),
    "investigate": ("investigate", ""),
    CANNOT_REACH: ("find out why", "cannot be reached"),
    NOT_PROVEN: ("collect the evidence that is missing from", ""),
    LOOK_AT: ("look at", ""),
}


@dataclass(frozen=True, slots=True)
class Task:
    """An action, its nodes, and the checks or causes that ask for it, the most frequent first."""

    action: str
    nodes: tuple[str, ...]
    reasons: tuple[str, ...]
    of_what: str = "node"  # or pair, run, cluster
    titles: tuple[str, ...] = ()  # titles of the same checks and causes
    checks: tuple[str, ...] = ()  # by id

    @property
    def headline(self) -> str:
        """`FIX CONFIGURATION gpu[008-016] (memlock)`."""
        return f"{self.action.upper()} {self.where} ({self.why})"

    @property
    def where(self) -> str:
        """`gpu[008-016]`; with their number where there are too many names for a line."""
        return self.where_within(MAX_NODES)

    def where_within(self, most: int) -> str:
        """The same in about so many characters."""
        if self.of_what == "cluster":
            return "the cluster"
        if self.of_what == "run":
            return f"run {self.nodes[0]}"
        nodes = fold(self.nodes)
        shown = within(nodes, most)
        return shown if shown == nodes else f"{len(self.nodes):,} {self.of_what}s ({shown})"

    @property
    def why(self) -> str:
        """`memlock, mtu, +3`."""
        return _first_reasons(self.reasons)

    @property
    def description(self) -> str:
        """`reset or reboot gpu003: Uncorrected GPU memory errors, Active NVLinks and 3 more`."""
        before, after = _AROUND.get(self.action, (f"{self.action}:", ""))
        return " ".join(filter(None, (before, self.where, after))) + f": {self.reasons_text}"

    @property
    def reasons_text(self) -> str:
        """`Locked memory limit, MTU and 3 more`."""
        return _first_reasons(self.titles, " and {} more")


def to_do(results: Iterable[Result], catalog: Catalog = PACKAGED) -> list[Task]:
    """All actions, the most severe first; a node is listed for each that it needs.

    Concerns are only listed if there is nothing else, and always for a training run that did not fail, because no run
    has files for every rule.
    """
    results = list(results)
    of_all = failed_by_all(results, catalog)
    findings = [*parts(result for result in results if result.verdict.is_finding)]
    unfit = {about(result) for result in findings if result.verdict is Verdict.FAIL or result.is_of_unreachable}
    if unfit and all(result.is_of_unreachable for result in results if result.is_of_node):
        unfit |= {about(result) for result in findings if result.is_of_cluster}  # nothing is known of the whole cluster
    tasks_of: dict[tuple[str, str], list[tuple[str, str, str, str]]] = defaultdict(list)
    for result in findings:
        action, reason = action_and_reason(result, of_all)
        if not (action == NOT_PROVEN and about(result) in unfit):
            title = "" if action in (NOT_PROVEN, CANNOT_REACH) else result.title
            tasks_of[action, subject_in_a_word(result)].append((result.node, reason, title or reason, result.check))
    tasks = []
    for (action, what), rows in tasks_of.items():
        nodes, reasons, titles, checks = zip(*rows, strict=True)
        of_nodes, of_checks = (tuple(dict.fromkeys(names)) for names in (nodes, checks))
        tasks.append(Task(action, of_nodes, _by_frequency(reasons), what, _by_frequency(titles), of_checks))
    graver = [
        task
        for task in tasks
        if task.action != LOOK_AT or (task.of_what == "run" and ("run", task.nodes[0]) not in unfit)
    ]
    return sorted(graver or tasks, key=lambda task: (action_rank(task.action, task.of_what), -len(task.nodes)))


def to_do_line(results: Iterable[Result], catalog: Catalog = PACKAGED) -> str:
    """The same in one line, with an interruption and the number of fit nodes; empty without results."""
    results = list(results)
    tasks, fit, cut = [task.headline for task in to_do(results, catalog)], fit_nodes(results), cut_of(results)
    if not tasks and not fit:
        return ""
    has_nodes = any(result.is_of_node for result in results)
    parts = [*([cut.description] if cut else []), *(tasks or ["NOTHING TO DO"]), *([f"{fit} fit"] if has_nodes else [])]
    return " · ".join(parts)


def to_do_within(results: Sequence[Result], catalog: Catalog, most: int) -> str:
    """The same in so many characters: else the first action, without cutting names, and how many more there are."""
    line = to_do_line(results, catalog)
    tasks = to_do(results, catalog)
    if len(line) <= most or not tasks:
        return line
    first, cut = tasks[0], cut_of(results)
    more = f" · {len(tasks) - 1} more" if len(tasks) > 1 else ""
    begin = f"{cut.description} · {first.action.upper()}" if cut else first.action.upper()
    around = len(f"{begin} {len(first.nodes)} {first.of_what}s (){more}")
    return f"{begin} {first.where_within(most - around)}{more}"


def shared_finding(results: Iterable[Result]) -> str:
    """`9 of 14 failed nodes share one finding: Locked memory limit`, if at least half of three or more do."""
    failed = [result for result in results if result.is_of_node and result.verdict is Verdict.FAIL]
    count = len({result.node for result in failed})
    hits = dict.fromkeys((result.check, result.title, result.node) for result in failed)
    most = Counter((check, title) for check, title, _ in hits).most_common(1)
    if not most or count < MIN_TO_SHARE or 2 * most[0][1] < count:
        return ""
    (check, title), nodes = most[0]
    return f"{nodes:,} of {count:,} failed nodes share one finding: {title or check}"


def fit_nodes(results: Iterable[Result]) -> int:
    """How many nodes are fit according to what was checked."""
    of_nodes = worst_of(result for result in results if result.is_of_node)
    return sum(verdict in PROVEN for verdict in of_nodes.values())


def _by_frequency(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word, _ in Counter(values).most_common())


def _first_reasons(reasons: Iterable[str], more: str = ", +{}") -> str:
    observed = list(dict.fromkeys(" ".join(reason.partition("; ")[0].split()) for reason in reasons))
    shown = [shortened(reason, MAX_REASON) for reason in observed[:MAX_REASONS]]
    return ", ".join(shown) + (more.format(len(observed) - MAX_REASONS) if len(observed) > MAX_REASONS else "")


MAX_IDS = 25  # nodes in one call of BatchRebootClusterNodes or BatchReplaceClusterNodes
MAX_CHECKS = 40  # names listed; with more, all are run
MAX_COMMAND = 2_000  # characters that fill half a screen; the page has complete commands
REPLACE, REBOOT = HARDWARE_ACTIONS
_IS_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}").fullmatch
_INSTANCE = re.compile(rf"(?:^|-)({INSTANCE_ID})$")


def commands(task: Task, cluster: Cluster | None) -> list[str]:
    """The shell commands for an action, one per line; empty if there is none."""
    if cluster is None or task.action not in HARDWARE_ACTIONS or task.of_what != "node":
        return []
    if not all(map(_IS_NODE, task.nodes)):
        return []
    lines = list(_lines(task, cluster))
    if not all(map(str.isprintable, lines)):
        return []
    is_demo = cluster.connection == "replay" and cluster.name == "demo"  # whose names may be those of real nodes
    return [f"# {line}" for line in lines] if is_demo else lines


def short_commands(task: Task, cluster: Cluster | None) -> list[str]:
    """The same, unless they are too long for a screen or a mail."""
    lines = commands(task, cluster)
    return lines if sum(map(len, lines)) <= MAX_COMMAND else []


def _lines(task: Task, cluster: Cluster) -> Iterator[str]:
    targets = {target.name: target for target in cluster.targets}
    targets_of_task = [targets[node] for node in task.nodes if node in targets]
    instances = [named[1] for target in targets_of_task if (named := _INSTANCE.search(target.address))]
    if len(targets_of_task) < len(task.nodes):
        return
    if is_of_hyperpod(cluster) and len(instances) == len(targets_of_task):
        yield from _of_hyperpod(task.action, cluster, instances)
    elif is_of_slurm(cluster):
        yield _of_slurm(task)
    elif is_of_kubernetes(cluster):
        yield join(["kubectl", *_context(cluster.settings), "cordon", *task.nodes])
    elif task.action == REBOOT and len(instances) == len(targets_of_task):
        yield join(["aws", "ec2", "reboot-instances", *_where(cluster.settings), "--instance-ids", *instances])
    elif task.action == REBOOT and "ssh" in (cluster.connection, cluster.settings.get("recorded_by")):
        yield from _by_ssh(targets_of_task)


def _of_hyperpod(action: str, cluster: Cluster, instances: Sequence[str]) -> Iterator[str]:
    call = "batch-replace-cluster-nodes" if action == REPLACE else "batch-reboot-cluster-nodes"
    command_line = ["aws", "sagemaker", call, *_where(cluster.settings), "--cluster-name", _name(cluster), "--node-ids"]
    for first in range(0, len(instances), MAX_IDS):
        yield join([*command_line, *instances[first : first + MAX_IDS]])


def _name(cluster: Cluster) -> str:
    """The name of a HyperPod cluster, or its ARN if another inventory has given it a different name."""
    return cluster.name if re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,62}", cluster.name) else cluster.settings["arn"]


def _of_slurm(task: Task) -> str:
    reason = quote(f"clusterproof: {task.why}")
    return f"scontrol update nodename={quote(fold(task.nodes))} state=drain reason={reason}"


def _context(settings: Mapping[str, str]) -> list[str]:
    access, _, name = settings["kubernetes"].partition(":")
    return [f"--context={name}"] if access == "context" and name else []


def _where(settings: Mapping[str, str]) -> Iterator[str]:
    for name in ("region", "profile"):
        if settings.get(name):
            yield from (f"--{name}", settings[name])


def _by_ssh(targets: Iterable[Target]) -> Iterator[str]:
    """One line for nodes that are reached as the same user at the same port."""
    by_login: dict[tuple[str, int], list[str]] = {}
    for target in targets:
        address = target.address or target.name
        if not _IS_NODE(address):
            return
        by_login.setdefault((target.user, target.port), []).append(address)
    for (user, port), addresses in by_login.items():
        as_user = ["-l", user] if user else []
        at_port = ["-o", f"-p {port}"] if port else []
        yield join(["clush", *as_user, *at_port, "-w", fold(addresses), "sudo systemctl reboot"])


def again(run: Run, verdict: Verdict) -> str:
    """The shell command that repeats the checks with this verdict on their nodes; empty: none.

    A check that compares pairs is run on all nodes: what is normal for one depends on the others.
    """
    results = [result for result in with_verdict(run.results, verdict) if result.check != BROKEN]
    if not results:
        return ""
    nodes = {result.node for result in results}
    checks = list(dict.fromkeys(result.check.rpartition(".")[2] for result in results))
    command_line = list(run.command)
    if (
        all(map(_IS_NODE, nodes))
        and all(result.is_of_node for result in results)
        and run.evaluated_by_pairs.isdisjoint(result.check for result in results)
    ):
        command_line += ["--nodes", fold(nodes)]
    if len(checks) <= MAX_CHECKS:
        command_line += ["-k", " or ".join(f"test_{name}" for name in checks)]
    return join(command_line)
