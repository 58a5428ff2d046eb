"""The kind of a failure in a journal; older journals only have it in the text of the problem."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.evidence.pairs import Failure

SAID = {  # texts of versions before journals had kinds: never change them
    "is not installed: looked": Failure.NO_PROGRAM,
    "is not a program here": Failure.NO_PROGRAM,
    "no RDMA device on either node": Failure.NO_RDMA,
    "by no fault of its own": Failure.NOT_AT_FAULT,
    "the ranks did not find each other": Failure.APART,
}


def failure_of(record: Mapping[str, str]) -> Failure | None:
    """The kind of a reading's failure, None for no kind. Raises ValueError."""
    if "failure" in record:
        return Failure(record["failure"]) if record["failure"] else None
    return next((failure for phrase, failure in SAID.items() if phrase in record.get("problem", "")), None)
