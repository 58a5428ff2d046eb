"""The owners of processes and files that a job left: read from the evidence, not from a message."""

from __future__ import annotations

from clusterproof.integrations.slurm.checking import findings_in, owners_in
from clusterproof.integrations.slurm.job import Job
from clusterproof.integrations.slurm.verdict import CheckRun, LeftoverOwner, draining
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from tests.builders.evaluated import results


def of_node(left: list[dict[str, object]], shm: list[dict[str, object]]) -> NodeEvidence:
    jobs = {"running": [], "left": left, "left_out": 0, "unread": 0, "shm": shm}
    collectors = {"jobs": Collected(Status.READ, jobs), "boot": Collected(Status.READ, {"memory_kib": 2**31})}
    return NodeEvidence("gpu001", collectors)


def process(job: str, **more: object) -> dict[str, object]:
    return {"pid": 9, "name": "sleep", "uid": 1000, "job": job, **more}


def files(uid: object) -> dict[str, object]:
    return {"uid": uid, "count": 1, "kib": 2**30, "oldest_s": 9.0}


def test_the_owner_of_a_jobs_leftovers_is_read_from_the_evidence() -> None:
    left = [process("41", is_sure=True), process("42", is_sure=False), process("43"), process("44", uid="x")]
    shm = [files(uid) for uid in (1000, 1000, "x", *range(1, 9))]
    owners = owners_in(of_node(left, shm))
    assert owners["host.job_leftovers"] == (
        LeftoverOwner("41"),
        LeftoverOwner("42", "1000"),
        LeftoverOwner("43", "1000"),
    )
    assert owners["host.shm_leaked"] == (
        LeftoverOwner(uid="1000"),
        *(LeftoverOwner(uid=str(uid)) for uid in range(1, 9)),
    )


def test_an_epilog_finds_its_users_files_however_many_other_users_the_message_names_first() -> None:
    """A message names six and counts the rest."""
    evidence = of_node([], [files(1000 + at) for at in range(9)])
    result = results(evidence, occasion="epilog")["host.shm_leaked"]
    finding, *_ = findings_in([result], evidence)
    assert (finding.check, finding.verdict, "1008" in finding.message) == ("host.shm_leaked", "fail", False)
    assert draining(
        CheckRun("boot", 100.0, 0.4, 47, (finding,), None, ("boot", 7, 99.0)), Job("42", "1008"), is_epilog=True
    ) == (finding,)
    assert (
        draining(
            CheckRun("boot", 100.0, 0.4, 47, (finding,), None, ("boot", 7, 99.0)), Job("42", "1009"), is_epilog=True
        )
        == ()
    )


def test_evidence_that_did_not_come_names_nobody() -> None:
    assert owners_in(NodeEvidence("gpu001", {})) == {"host.job_leftovers": (), "host.shm_leaked": ()}
