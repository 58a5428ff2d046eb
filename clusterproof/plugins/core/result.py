"""A check's findings, each with its verdict, and its result on a node or cluster."""

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
# Causes are kept in files of results, and told apart there by later versions: these never change.
UNREACHABLE = "unreachable: "  # begins the cause of whatever is not known of a node that could not be reached
NOT_RECORDED = "no file records"  # begins the cause of whatever is not known of a run as none of its files has it
INTERRUPTED = "the run was interrupted"  # the cause of whatever was chosen and is not evaluated
ACTIONS = (  # what a failed check asks for, the gravest first; the last where its remedy names none
    "replace",
    "reset or reboot",
    "fix configuration",
    "fix code",
    "restore service",
    "clean up",
    "investigate",
)

OF_HARDWARE = ACTIONS[:2]

OF_A_PAIR = "pair"  # subject of checks that run for each pair of nodes that was measured
ALL_PAIRS = "pairs"  # stands in the place of their names where none was measured
OF_A_RUN = ("run", "rank")  # subjects of checks of a training run, which `--run` names
OF_THE_CLUSTER = ("cluster", "file_system")  # subjects of checks that run once for the cluster, not on each node
OF_A_MEMBER = "k8s_node"  # of those that run on each node, by what the control plane reports of it
OF_NO_NODE = frozenset({OF_A_PAIR, *OF_A_RUN, *OF_THE_CLUSTER})


@record
class Finding:
    """One finding of a check: `message` reads `observed; expected …`, and holds for each of the devices.

    `action` is what a failure asks for, in a word or two; `cause` as of `Result`.
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
    """The findings, worst first, safe to show; what is said alike of several devices is one finding of all of them."""
    devices: dict[Finding, list[str]] = {}
    for finding in findings:
        alike = Finding(finding.verdict, finding.message, (), finding.cause, finding.action)
        devices.setdefault(alike, []).extend(finding.devices)
    merged = [
        Finding(alike.verdict, printable(alike.message), _names(names), printable(alike.cause), alike.action)
        for alike, names in devices.items()
    ]
    return tuple(sorted(merged, key=lambda finding: finding.verdict.rank))


def _names(devices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(printable, devices)))


def in_lines(findings: Sequence[Finding]) -> str:
    """A line for each of them that says something; one of another verdict than the first begins with its own."""
    lines = (
        line if finding.verdict is findings[0].verdict else f"{finding.verdict.value}: {line}"
        for finding in findings
        if (line := finding.line)
    )
    return printable("\n".join(dict.fromkeys(lines)))


def devices_of(findings: Sequence[Finding], verdict: Verdict) -> tuple[str, ...]:
    """The devices of which findings of this verdict speak."""
    return tuple(dict.fromkeys(name for finding in findings if finding.verdict is verdict for name in finding.devices))


def split_message(message: str) -> tuple[str, str]:
    """`observed; expected …` as its two halves; the second is empty where the message has none."""
    observed, _, expected = message.partition("; expected ")
    return observed, expected


@record
class Measured:
    """One number that a run measured on a node, such as `busbw` in `GB/s`; the history keeps it."""

    name: str
    node: str
    value: float
    unit: str


@record
class Result:
    """One verdict with everything that a person or a program needs to act on it.

    `subject` is what the check looks at one by one (node, gpu, efa_device, …), `devices` those of them that the verdict
    speaks of ("GPU 3", "rdmap79s0", "/fsx"); `observed` and `expected` are the two halves of `message`; `cause` is the
    same text wherever many results have one cause ("unreachable: refused"): reports fold those that are incomplete;
    `team` is whose a finding is, for people;
    `action` is the remedy in a word or two ("replace"), of failures only;
    `since_last` is new, still or gone, against the last run of a history; empty where it was fine and is;
    `findings` has one by one, worst first, what `message` says line by line; none where all is well.
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
        """This result once for each verdict among its findings, the worst first, each with what has that verdict."""
        verdicts = dict.fromkeys(finding.verdict for finding in self.findings)
        if len(verdicts) < 2:
            return (self,)
        return tuple(
            with_findings(self, tuple(finding for finding in self.findings if finding.verdict is verdict))
            for verdict in verdicts
        )

    @property
    def skill(self) -> str:
        """`hyperpod-node-debugger § G`."""
        return f"{self.owner} § {self.section}" if self.section else self.owner

    @property
    def is_of_cluster(self) -> bool:
        """Whether it is about the cluster as a whole; `node` then is the cluster's name."""
        return self.subject in OF_THE_CLUSTER

    @property
    def is_of_pair(self) -> bool:
        """Whether it is about two nodes together; `node` then is `gpu1~gpu7`."""
        return self.subject == OF_A_PAIR

    @property
    def is_of_run(self) -> bool:
        """Whether it is about a training run; `node` then is the run's name."""
        return self.subject in OF_A_RUN

    @property
    def is_of_node(self) -> bool:
        """Whether it is about one node, which `node` then names."""
        return self.subject not in OF_NO_NODE

    @property
    def is_of_unreachable(self) -> bool:
        """Whether its node was not reached, which is why there is no more to say."""
        return self.cause.startswith(UNREACHABLE)

    @property
    def unreached(self) -> Unreached | None:
        """Why its node was not reached; None where it was."""
        return _UNREACHED.get(self.cause)

    @property
    def needs_other_files(self) -> bool:
        """Whether no file of its run has what the check evaluates."""
        return self.is_of_run and self.verdict is Verdict.INCOMPLETE and self.cause.startswith(NOT_RECORDED)

    @property
    def is_evaluated(self) -> bool:
        """Whether the check was called; it was not where the run ended before."""
        return self.cause != INTERRUPTED

    @property
    def says_unreachable(self) -> bool:
        """Whether it is the one check that says so of the node: all others of it have nothing to add."""
        return self.check == REACHABLE and self.is_of_unreachable

    def to_json(self) -> dict[str, Any]:
        """The whole record (reports/result.schema.json), as `--results` writes it of a fail or a concern."""
        record: dict[str, Any] = {name: getattr(self, name) for name in _NAMES}
        record["verdict"] = self.verdict.value
        record["devices"] = list(self.devices)
        record["gpu_uuids"] = list(self.gpu_uuids)
        record["findings"] = [{**as_json(finding), "verdict": finding.verdict.value} for finding in self.findings]
        return {"schema": SCHEMA, **record}


def why_unreachable(unreached: Unreached) -> str:
    """The cause of whatever is not known of a node that was not reached: `unreachable: host key`."""
    return f"{UNREACHABLE}{unreached.value.replace('_', ' ')}"


_UNREACHED = {why_unreachable(unreached): unreached for unreached in Unreached}


def gravest(actions: Iterable[str]) -> str:
    """The one that stands first in ACTIONS, or one that only a site knows; empty where there is none."""
    return min(actions, key=lambda action: ACTIONS.index(action) if action in ACTIONS else 0, default="")


def with_findings(result: Result, findings: tuple[Finding, ...]) -> Result:
    """The result that says these, `grouped`: the first is the worst, and has its verdict, cause and devices."""
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
        action=gravest(finding.action for finding in findings if finding.verdict is Verdict.FAIL),
        findings=findings,
    )


def from_json(record: dict[str, Any]) -> Result:
    """The inverse of `Result.to_json`; also of schema 1, which had no findings one by one."""
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
