"""What was read of a job so far: each reader adds what it finds, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from clusterproof.plugins.case import (
    Event,
    Fact,
    Job,
    Lead,
    LogBegin,
    Missing,
    MissingKind,
    Offset,
    Span,
    label,
    one_line,
    pods,
    scheduler,
)
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.output import Output
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import field, record, replace
from clusterproof.plugins.training_run import Dump


@record
class CaseBuilder:
    """The contents of the files so far."""

    jobs: list[Job] = field(default_factory=list)
    records: list[scheduler.Record] = field(default_factory=list)  # their job is still to be determined
    heterogeneous: set[str] = field(default_factory=set)  # jobs of several components
    events: list[Event] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    dumps: dict[int, Dump] = field(default_factory=dict)
    files_of_dumps: dict[int, str] = field(default_factory=dict)
    dumps_left_out: dict[int, str] = field(default_factory=dict)  # files of earlier dumps of a rank
    dumps_not_read: set[int] = field(default_factory=set)  # ranks whose dump could not be read
    ras_leads: list[Lead] = field(default_factory=list)  # according to NCCL's RAS
    ranks: set[int] = field(default_factory=set)  # with output of their own
    nodes_with_log: list[str] = field(default_factory=list)
    nodes_in_part: list[str] = field(default_factory=list)  # whose log was not read whole
    nodes_watched: dict[str, None] = field(default_factory=dict)  # of whose kernel log a watch recorded lines
    logs_begin: dict[str, LogBegin] = field(default_factory=dict)  # -inf if a node's log does not show it
    nodes_checked: dict[str, None] = field(default_factory=dict)
    nodes_of_pods: dict[str, str] = field(default_factory=dict)  # in Kubernetes, with a domain
    objects: dict[str, Job] = field(default_factory=dict)  # of Kubernetes, by job name
    cluster: str = ""  # as named for `clusterproof check`, if known
    clocks: dict[str, Offset] = field(default_factory=dict)  # of nodes that were asked
    counts: dict[str, int] = field(default_factory=dict)
    lacks: list[Missing] = field(default_factory=list)

    def lack(self, text: str, kind: MissingKind | None = None) -> None:
        """Add something missing; texts without a kind may be untrusted, and are bounded."""
        self.lacks.append(Missing(text if kind else one_line(text, 400), kind))

    @property
    def missing(self) -> tuple[str, ...]:
        """What is missing, in words."""
        return tuple(part.words for part in self.lacks)

    def log_begins(self, node: str, begins: LogBegin) -> None:
        """Add a part of a node's log; the earliest counts."""
        known = self.logs_begin.get(node, begins)
        self.logs_begin[node] = min(known, begins, key=lambda of: of.seconds)

    def count(self, what: str) -> None:
        """Count another file of this form."""
        self.counts[what] = self.counts.get(what, 0) + 1

    @property
    def job(self) -> Job:
        """What its records, or else its pods, report about it."""
        job = _merged(self.jobs or (self.objects.values() if len(self.objects) == 1 else ()))
        return replace(job, nodes=job.nodes or tuple(filter(None, self.nodes_of_pods)))

    def take_object(self, record: Mapping[str, Any], source: str, clock: Clock) -> Job | None:
        """Add a Kubernetes object; returns its job, if it is the job's own object."""
        self.events.extend(pods.read(record, source, clock))
        if whole := pods.name_of_node(record):
            self.nodes_of_pods[label(whole)] = whole
        if job := pods.job_of(record, clock):
            self.objects[job.number] = _merged((self.objects.get(job.number, job), job))
        return job

    def take_records(self, records: Collection[scheduler.Record], text: str) -> None:
        """Add the jobs in a record of Slurm."""
        self.records.extend(records)
        self.heterogeneous.update(scheduler.heterogeneous_jobs(text))
        self.count("record of Slurm")

    def drop_other_jobs(self, number: str) -> None:
        """Drop the records of other jobs in a folder."""
        wanted = number.partition("+")[0]
        others = [job.number for job, _ in self.records if wanted not in (job.number, job.number.partition("_")[0])]
        self.records[:] = [entry for entry in self.records if entry[0].number not in others]
        if others:
            self.lack(f"records of other jobs are left out: {listed(others)}")

    def settle(self, number: str = "") -> None:
        """Accept the records of one job. Raises CaseError if they are of several jobs."""
        records, others = scheduler.of_one_job(self.records, number)
        self.records.clear()
        by_sign = {event.sign: event for _, events in reversed(records) for event in reversed(events)}
        known = {event.sign for event in self.events}
        self.events.extend(event for sign, event in reversed(by_sign.items()) if sign not in known)
        for job, _ in records:
            self.jobs.append(job)
            if not scheduler.has_ended(job):
                self.lack(f"the end of the job: its record is of when it was {job.state}")
        if others:
            self.lack(f"other tasks of this array, of which this is {records[0][0].number}: {listed(others)}")


def _merged(jobs: Iterable[Job]) -> Job:
    """Combine several records of one job."""
    whole = Job()
    for job in jobs:
        whole = Job(
            whole.number or job.number,
            whole.state or job.state,
            whole.exit_code or job.exit_code,
            whole.nodes or job.nodes,
            Span(whole.ran.begins or job.ran.begins, whole.ran.ends or job.ran.ends),
        )
    return whole
