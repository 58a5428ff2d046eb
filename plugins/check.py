"""A check: a test function about one node, and how its verdict on a node comes about."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import pytest

from clusterproof.plugins.facts.cluster import ClusterFacts
from clusterproof.plugins.facts.fact import leaves_needed, names_mentioned
from clusterproof.plugins.facts.file_systems import file_systems
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.facts.of_node.gpus import HIDDEN
from clusterproof.plugins.printable import printable
from clusterproof.plugins.result import SEVERITIES, Result
from clusterproof.plugins.routing import Route, route
from clusterproof.plugins.verdict import Concern, Incomplete, NotApplicable, Verdict

# The argument of a light check says what it is called for: once for the node, or once for each of its devices. A check
# of devices may ask for the node besides.
SUBJECTS: dict[str, Callable[[Node], Iterable[Any]]] = {
    "node": lambda node: (node,),
    "gpu": lambda node: node.gpus,
    "pci_device": lambda node: node.pci_devices,
    "efa_device": lambda node: node.efa_devices,
    "ib_device": lambda node: node.ib_devices,
    "mount": lambda node: node.mounts,
    "lustre_client": lambda node: node.lustre_clients,
    "ost": lambda node: node.osts,
    "mdt": lambda node: node.mdts,
    "nvme": lambda node: node.nvme_controllers,
    "neuron_device": lambda node: node.neuron_devices,
}
# Or it is called once for the cluster, where that is one of AWS's, or for each thing that the cluster has.
SUBJECTS_OF_CLUSTER: dict[str, Callable[[ClusterFacts], Iterable[Any]]] = {
    "cluster": lambda cluster: (cluster,),
    "file_system": file_systems,
}
# Or for two nodes that were measured together.
SUBJECTS_OF_PAIR: dict[str, Callable[[Any], Iterable[Any]]] = {"pair": lambda pair: pair.subjects}
WHOLE = ("node", "cluster")  # what has no devices beside it
UNLABELLED = (*WHOLE, *SUBJECTS_OF_PAIR)
_DEVICES = {
    "gpu": "NVIDIA GPU",
    "pci_device": "NVIDIA, EFA or Mellanox device on the PCI bus",
    "efa_device": "EFA device",
    "ib_device": "InfiniBand or RoCE device",
    "mount": "mount",
    "file_system": "FSx file system",
    "lustre_client": "connection to a Lustre server",
    "ost": "Lustre OST",
    "mdt": "Lustre MDT",
    "nvme": "NVMe controller",
    "neuron_device": "Neuron device",
}
_COUNTED = {"gpu": "gpus", "efa_device": "efa"}  # devices of which a node is expected to have a number


@dataclass(frozen=True, slots=True)
class Check:
    """A light check and what is known of it before it runs."""

    function: Callable[..., None]
    subject: str
    wants_owner: bool  # its node or its cluster, besides the device
    route: Route
    path: str
    line: int

    @property
    def leaves(self) -> frozenset[str]:
        """What it needs that nodes tell."""
        return _leaves(self.function, self.subject)[0]

    @property
    def control_leaves(self) -> frozenset[str]:
        """What it needs that AWS or Slurm tells."""
        return _leaves(self.function, self.subject)[1]

    @property
    def is_of_cluster(self) -> bool:
        """Whether it is run once for the cluster rather than on each node."""
        return self.subject in SUBJECTS_OF_CLUSTER

    @property
    def is_of_pair(self) -> bool:
        """Whether it is run for each pair of nodes that was measured."""
        return self.subject in SUBJECTS_OF_PAIR

    @property
    def needs_pairs(self) -> bool:
        """Whether pairs of nodes are to be measured for it."""
        return self.is_of_pair or "pairwise" in names_mentioned(self.function, Node)


class Owner(Protocol):
    """A node, a pair of nodes, or the cluster: what a result is about."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type_name(self) -> str:
        """Its instance type, else empty."""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of its GPUs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check says of one subject."""

    verdict: Verdict
    label: str = ""
    message: str = ""
    cause: str = ""


def check_of(function: Callable[..., Any], marks: Iterable[pytest.Mark]) -> Check:
    """The check that a test function is; `is_light` must hold for it."""
    parameters = tuple(inspect.signature(function).parameters)
    subject = next((name for name in parameters if name not in WHOLE), parameters[0])
    code = inspect.unwrap(function).__code__
    return Check(
        function,
        subject,
        len(parameters) == 2,
        route(function, marks),
        code.co_filename,
        code.co_firstlineno - 1,
    )


@cache
def _leaves(function: Callable[..., Any], subject: str) -> tuple[frozenset[str], frozenset[str]]:
    """What a check needs of each node, which one of the cluster may not need at all, and of the control plane."""
    if subject in SUBJECTS:
        return leaves_needed(function, Node) | leaves_needed(SUBJECTS[subject], Node), frozenset()
    if subject in SUBJECTS_OF_PAIR:
        return frozenset(), frozenset()
    both = (function, SUBJECTS_OF_CLUSTER[subject])
    of_aws = frozenset[str]().union(*(leaves_needed(one, ClusterFacts) for one in both))
    if not any("nodes" in names_mentioned(one, ClusterFacts) for one in both):
        return frozenset(), of_aws
    return frozenset[str]().union(*(leaves_needed(one, Node) for one in both)), of_aws


def is_light(function: Callable[..., Any]) -> bool:
    """Whether a function asks for nothing but a node, or its devices one by one, or both; or so of the cluster."""
    parameters = inspect.signature(function).parameters.keys()
    if parameters and SUBJECTS_OF_PAIR.keys() >= parameters:
        return True
    return any(
        subjects >= parameters and len(parameters - {whole}) <= 1 <= len(parameters)
        for subjects, whole in ((SUBJECTS.keys(), "node"), (SUBJECTS_OF_CLUSTER.keys(), "cluster"))
    )


def judge(check: Check, owner: Owner) -> Result:
    """Run a check on a node, a pair of them, or the cluster: one result, as bad as the worst of its devices."""
    started = time.perf_counter()
    findings = _findings(check, owner)
    return _result(check.route, check.subject, owner, findings, time.perf_counter() - started)


def not_run(check: Check, owner: Owner, why: str) -> Result:
    """The result of a check that is not to be run: not applicable, and why."""
    return _result(check.route, check.subject, owner, [Finding(Verdict.NOT_APPLICABLE, message=why)], 0.0)


def result_of(about: Route, node: Owner, outcome: BaseException | None, seconds: float) -> Result:
    """The result of a test that pytest itself ran, from how it ended."""
    finding = Finding(Verdict.PASS) if outcome is None else _finding("", outcome)
    return _result(about, "node", node, [finding], seconds)


def _findings(check: Check, owner: Owner) -> list[Finding]:
    try:
        subjects = list(subjects_of(check, owner))
    except (Incomplete, NotApplicable) as ended:
        return [_finding("", ended)]
    if not subjects:
        return [_of_nothing(check.subject, owner)]
    return [*(_examine(check, subject, owner) for subject in subjects), *_unseen(check.subject, owner)]


def _unseen(subject: str, owner: Owner) -> list[Finding]:
    """That there are GPUs which the probe was not let at: what holds for the others is no pass."""
    if subject != "gpu" or not isinstance(owner, Node) or not owner.hidden_gpus:
        return []
    return [Finding(Verdict.INCOMPLETE, message=owner.hidden_gpus, cause=HIDDEN)]


def subjects_of(check: Check, owner: Any) -> Iterable[Any]:
    """What the check is called for, one by one. Raises Incomplete, NotApplicable."""
    return {**SUBJECTS, **SUBJECTS_OF_PAIR, **SUBJECTS_OF_CLUSTER}[check.subject](owner)


def _of_nothing(subject: str, owner: Owner) -> Finding:
    """What a check of devices says where there is none: incomplete where there should be some."""
    try:
        expected = owner.expected(_COUNTED[subject]) if isinstance(owner, Node) and subject in _COUNTED else 0
    except Incomplete:
        expected = 0  # nothing tells: then none is no loss, and the check that counts them is incomplete itself
    if expected:
        message = f"no {_DEVICES[subject]} answers; expected {expected}"
        return Finding(Verdict.INCOMPLETE, message=message, cause=f"no {_DEVICES[subject]} answers")
    return Finding(Verdict.NOT_APPLICABLE, message=f"no {_DEVICES[subject]} on this {_whole(owner)}")


def _whole(owner: Owner) -> str:
    return "node" if isinstance(owner, Node) else "cluster"


def _examine(check: Check, subject: Any, owner: Owner) -> Finding:
    try:
        call(check, subject, owner)
    except Exception as ended:  # whatever a check raises is a finding; its own crash is incomplete
        return _finding("" if check.subject in UNLABELLED else _label(subject), ended)
    except (pytest.skip.Exception, pytest.fail.Exception) as ended:
        return _finding("" if check.subject in UNLABELLED else _label(subject), ended)
    return _PASSED


_PASSED = Finding(Verdict.PASS)


def call(check: Check, subject: Any, owner: Any) -> None:
    """Call the test function for one subject; its verdict is how it ends."""
    asked = {check.subject: subject}
    if check.wants_owner:
        asked["cluster" if check.is_of_cluster else "node"] = owner
    check.function(**asked)


def _label(subject: Any) -> str:
    try:
        return str(subject.label)
    except Incomplete:
        return "a device without a name"


def _finding(label: str, ended: BaseException) -> Finding:
    if isinstance(ended, AssertionError):
        return Finding(Verdict.FAIL, label, assertion_message(ended))
    if isinstance(ended, Concern):
        return Finding(Verdict.CONCERN, label, str(ended))
    if isinstance(ended, Incomplete):
        return Finding(Verdict.INCOMPLETE, label, str(ended), ended.cause)
    if isinstance(ended, NotApplicable):
        return Finding(Verdict.NOT_APPLICABLE, label, str(ended))
    if isinstance(ended, pytest.skip.Exception):
        return Finding(Verdict.NOT_APPLICABLE, label, str(ended.msg or ended))
    if isinstance(ended, pytest.fail.Exception):
        return Finding(Verdict.FAIL, label, str(ended.msg or ended))
    where = traceback.extract_tb(ended.__traceback__)[-1]
    what = f"the check itself broke: {type(ended).__name__}: {ended} ({where.filename}:{where.lineno})"
    return Finding(Verdict.INCOMPLETE, label, what, cause=what)


def assertion_message(failed: AssertionError) -> str:
    """The words of an assert, without the explanation that pytest's rewriting appends."""
    text = str(failed)
    return text.split("\nassert ", 1)[0] or text


def _result(about: Route, subject: str, node: Owner, findings: list[Finding], seconds: float) -> Result:
    worst = min(findings, key=lambda finding: finding.verdict.rank)
    verdict = worst.verdict
    told = [finding for finding in findings if finding.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)]
    lines = _lines(told or [worst]) if told or worst.message else []  # mostly there is nothing to say
    observed, expected = split_message(lines[0].partition("\n")[0]) if lines else ("", "")
    return Result(
        check=about.check,
        node=node.name,
        verdict=verdict,
        title=about.title,
        message=printable("\n".join(lines)),
        observed=printable(observed),
        expected=printable(expected),
        devices=tuple(printable(finding.label) for finding in findings if finding.verdict is verdict and finding.label),
        cause=printable(worst.cause),
        owner=about.owner,
        section=about.section,
        severity=SEVERITIES.get(verdict, "none"),
        evidence=about.evidence,
        meaning=about.meaning,
        remedy=about.remedy,
        subsystem=about.subsystem,
        subject=subject,
        instance_type=node.type_name,
        gpu_uuids=node.gpu_uuids,
        duration_s=round(seconds, 6),
    )


def _lines(findings: list[Finding]) -> list[str]:
    """One line for findings that say the same, worst first: `GPU 3, GPU 5: 2 errors; expected 0`."""
    labels: dict[str, list[str]] = {}
    for finding in sorted(findings, key=lambda finding: finding.verdict.rank):
        labels.setdefault(finding.message, []).append(finding.label)
    return [
        f"{', '.join(names)}: {message}" if (names := [name for name in owners if name]) else message
        for message, owners in labels.items()
        if message
    ]


def split_message(message: str) -> tuple[str, str]:
    """`observed; expected …` as its two halves; the second is empty where the message has none."""
    observed, _, expected = message.partition("; expected ")
    return observed, expected
