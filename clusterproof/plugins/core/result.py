"""The result of a check on a node or cluster, and its findings, each with its own verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import as_json, names_of, record, replace
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import Verdict

SCHEMA = 3
SUBSYSTEMS = ("node", "gpu", "neuron", "network", "host", "storage", "software", "control_plane", "run")
SEVERITIES = {Verdict.FAIL: "error", Verdict.CONCERN: "warning", Verdict.INCOMPLETE: "unknown"}

REACHABLE = "node.reachable"  # the check that says whether a node was reached
# Causes are stored in result files and compared by later versions: never change these texts.
UNREACHABLE = "unreachable: "  # prefix of the cause for everything unknown about a node that could not be reached
NOT_RECORDED = "no file records"  # prefix of the cause for what is unknown because none of a run's files has it
INTERRUPTED = "the run was interrupted"  # cause of whatever was selected but not evaluated
ACTIONS = (  # what a failed check asks for, the most severe first; the last if its remedy names none
    "replace",
    "reset or reboot",
    "fix configuration",
    "fix code",
    "restore service",
    "clean up",
    "investigate",
)

HARDWARE_ACTIONS = ACTIONS[:2]

PAIR_SUBJECT = "pair"  # subject of checks that run for each pair of nodes that was measured
ALL_PAIRS = "pairs"  # replaces the pair's names where none was measured
RUN_SUBJECTS = ("run", "rank")  # subjects of checks of a training run, which `--run` names
CLUSTER_SUBJECTS = ("cluster", "file_system")  # subjects of checks that run once for the cluster, not on each node
MEMBER_SUBJECT = "k8s_node"  # of checks that run on each node, evaluated from what the control plane reports of it
SUBJECTS_WITHOUT_NODE = frozenset({PAIR_SUBJECT, *RUN_SUBJECTS, *CLUSTER_SUBJECTS})


@record
class Finding:
    """One thing that a check found: `message` reads `observed; expected …` and applies to each of the devices.

    `action` is what a failure asks for, in a word or two; `cause` as in `Result`.
    """

    verdict: Verdict
    message: str = ""
    devices: tuple[str, ...] = ()
    cause: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        """`GPU 3, GPU 5: 2 errors; expected 0`."""
        return f"{', '.join(self.devices)}: {self.message}" if self.devices and self.message else self.message


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, worst first, escaped; findings with the same text are merged over their devices."""
    devices: dict[Finding, list[str]] = {}
    for finding in findings:
        key = Finding(finding.verdict, finding.message, (), finding.cause, finding.action)
        devices.setdefault(key, []).extend(finding.devices)
    merged = [
        Finding(
            key.verdict,
            printable(key.message),
            _names(names),
            printable(key.cause),
            key.action,
        )
        for key, names in devices.items()
    ]
    return tuple(sorted(merged, key=lambda finding: finding.verdict.rank))


def _names(devices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(printable, devices)))


def in_lines(findings: Sequence[Finding]) -> str:
    """A line for each finding with a message; one whose verdict is not the first's is prefixed with it."""
    lines = (
        line if finding.verdict is findings[0].verdict else f"{finding.verdict.value}: {line}"
        for finding in findings
        if (line := finding.line)
    )
    return printable("\n".join(dict.fromkeys(lines)))


def devices_of(findings: Sequence[Finding], verdict: Verdict) -> tuple[str, ...]:
    """The devices that findings with this verdict name."""
    return tuple(dict.fromkeys(name for finding in findings if finding.verdict is verdict for name in finding.devices))


def split_message(message: str) -> tuple[str, str]:
    """Split `observed; expected …` in two; the second part is empty if the message has none."""
    observed, _, expected = message.partition("; expected ")
    return observed, expected


@record
class Measured:
    """One number that a run measured on a node, such as `busbw` in `GB/s`; stored in the history."""

    name: str
    node: str
    value: float
    unit: str


@record
class Result:
    """One verdict with everything that a person or a program needs to act on it.

    `subject` is what the check looks at one by one (node, gpu, efa_device, …), `devices` those the verdict is about
    ("GPU 3", "rdmap79s0", "/fsx"); `observed` and `expected` are the two halves of `message`; `cause` is the same text
    for all results with one cause ("unreachable: refused"), by which reports fold incomplete results;
    `team` is who owns a finding, for people;
    `action` is the remedy in a word or two ("replace"), for failures only;
    `since_last` is new, still or gone, compared to the last run in a history; empty if it was and is fine;
    `findings` are the parts of `message`, worst first; empty if all is well.
    """

    check: str  # the stable id, e.g. gpu.no_uncorrected_ecc
    node: str
    verdict: Verdict
    title: str = ""
    message: str = ""
    observed: str = ""
    expected: str = ""
    devices: tuple[str, ...] = ()
    cause: str = ""
    owner: str = ""
    section: str = ""
    severity: str = ""
    evidence: str = ""
    meaning: str = ""
    remedy: str = ""
    subsystem: str = ""
    subject: str = "node"
    instance_type: str = ""
    gpu_uuids: tuple[str, ...] = ()
    duration_s: float = 0.0
    since_last: str = ""
    action: str = ""
    team: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def by_verdict(self) -> tuple[Result, ...]:
        """Split the result by the verdicts of its findings, the worst first."""
        verdicts = dict.fromkeys(finding.verdict for finding in self.findings)
        if len(verdicts) < 2:
            return (self,)
        return tuple(
            with_findings(self, tuple(finding for finding in self.findings if finding.verdict is verdict))
            for verdict in verdicts
        )

    @property
    def by_cause(self) -> tuple[Result, ...]:
        """Split the result by the causes of its findings; those without one stay together."""
        causes = dict.fromkeys(finding.cause for finding in self.findings)
        if len(causes) < 2:
            return (self,)
        return tuple(
            with_findings(self, tuple(finding for finding in self.findings if finding.cause == cause))
            for cause in causes
        )

    @property
    def skill(self) -> str:
        """`hyperpod-node-debugger § G`."""
        return f"{self.owner} § {self.section}" if self.section else self.owner

    @property
    def is_of_cluster(self) -> bool:
        """Whether it is about the whole cluster; `node` then is the cluster's name."""
        return self.subject in CLUSTER_SUBJECTS

    @property
    def is_of_pair(self) -> bool:
        """Whether it is about a pair of nodes; `node` then is `gpu1~gpu7`."""
        return self.subject == PAIR_SUBJECT

    @property
    def is_of_run(self) -> bool:
        """Whether it is about a training run; `node` then is the run's name."""
        return self.subject in RUN_SUBJECTS

    @property
    def is_of_node(self) -> bool:
        """Whether it is about one node, which `node` then names."""
        return self.subject not in SUBJECTS_WITHOUT_NODE

    @property
    def is_of_unreachable(self) -> bool:
        """Whether it only says that its node was not reached."""
        return self.cause.startswith(UNREACHABLE)

    @property
    def unreached(self) -> Unreached | None:
        """Why its node was not reached; None if it was."""
        return _UNREACHED.get(self.cause)

    @property
    def needs_other_files(self) -> bool:
        """Whether no file of its run has what the check evaluates."""
        return self.is_of_run and self.verdict is Verdict.INCOMPLETE and self.cause.startswith(NOT_RECORDED)

    @property
    def is_evaluated(self) -> bool:
        """Whether the check was called; false if the run ended before."""
        return self.cause != INTERRUPTED

    @property
    def reports_unreachable(self) -> bool:
        """Whether this is the one result that reports an unreachable node; the node's other results add nothing."""
        return self.check == REACHABLE and self.is_of_unreachable

    def to_json(self) -> dict[str, Any]:
        """The whole record (reports/result.schema.json), as `--results` writes it for a fail or a concern."""
        record: dict[str, Any] = {name: getattr(self, name) for name in _NAMES}
        record["verdict"] = self.verdict.value
        record["devices"] = list(self.devices)
        record["gpu_uuids"] = list(self.gpu_uuids)
        record["findings"] = [{**as_json(finding), "verdict": finding.verdict.value} for finding in self.findings]
        return {"schema": SCHEMA, **record}


def why_unreachable(unreached: Unreached) -> str:
    """The cause shared by all results of a node that was not reached: `unreachable: host key`."""
    return f"{UNREACHABLE}{unreached.value.replace('_', ' ')}"


_UNREACHED = {why_unreachable(unreached): unreached for unreached in Unreached}


def most_urgent(actions: Iterable[str]) -> str:
    """The first of these in the order of ACTIONS, or one that only a site knows; empty if none is named."""
    return min(filter(None, actions), key=lambda action: ACTIONS.index(action) if action in ACTIONS else 0, default="")


def with_findings(result: Result, findings: tuple[Finding, ...]) -> Result:
    """The result with these findings, `grouped`: the first is the worst and sets verdict, cause and devices."""
    first = findings[0]
    observed, expected = split_message(first.line.partition("\n")[0])
    return replace(
        result,
        verdict=first.verdict,
        message=in_lines(findings),
        observed=observed,
        expected=expected,
        devices=devices_of(findings, first.verdict),
        cause=first.cause,
        severity=SEVERITIES.get(first.verdict, "none"),
        action=most_urgent(finding.action for finding in findings if finding.verdict is Verdict.FAIL),
        findings=findings,
    )


def from_json(record: dict[str, Any]) -> Result:
    """The inverse of `Result.to_json`; also reads schema 1, which had no list of findings."""
    fields = {name: value for name, value in record.items() if name in _NAMES}
    fields["verdict"] = Verdict(fields["verdict"])
    fields["devices"] = tuple(fields["devices"])
    fields["gpu_uuids"] = tuple(fields["gpu_uuids"])
    fields["findings"] = tuple(_finding(finding) for finding in fields.get("findings", ()))
    return Result(**fields)


def _finding(record: dict[str, Any]) -> Finding:
    fields = {**record, "verdict": Verdict(record["verdict"]), "devices": tuple(record["devices"])}
    return Finding(**{name: fields[name] for name in names_of(Finding)})


_NAMES = names_of(Result)
