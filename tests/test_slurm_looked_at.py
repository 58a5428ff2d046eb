"""From where on the kernel log is judged again for a drain, once an administrator has taken back what it was of."""

from __future__ import annotations

import pytest

from clusterproof.integrations.slurm.drains import Drain, since_looked_at
from clusterproof.integrations.slurm.verdict import Cursor, Finding

XID, AER, LOST = "gpu.no_xid", "host.pcie_aer", "gpu.gpu_answers"


def at(sequence: int, boot: str = "boot") -> Cursor:
    return boot, sequence, 1.0 * sequence


ENDS = at(20)


def begins(checks: tuple[str, ...], looked: dict[str, Cursor], ends: Cursor | None = ENDS) -> Cursor | None:
    findings = tuple(Finding(check, "fail", "") for check in checks)
    drain = Drain("epilog", "41", findings, "clusterproof: why", at(10), 1.0, ends=ends)
    return since_looked_at(drain, looked, at(50), {XID, AER}.__contains__).begins


@pytest.mark.parametrize(
    ("checks", "looked", "sequence"),
    [
        ((XID,), {}, 10),
        ((XID,), {XID: at(20)}, 50),
        ((XID,), {XID: at(30)}, 50),
        ((XID,), {XID: at(15)}, 15),
        ((XID, AER), {XID: at(20)}, 10),
        ((XID, AER), {XID: at(20), AER: at(17)}, 17),
        ((XID, LOST), {XID: at(20)}, 50),
        ((LOST,), {XID: at(40)}, 50),
        ((XID,), {XID: at(20, "another boot")}, 10),
        ((), {XID: at(20)}, 10),
    ],
    ids=[
        "nothing was looked at",
        "all was looked at",
        "more was looked at",
        "some was looked at",
        "one check's was",
        "some of both",
        "what the log does not tell",
        "nothing of the log",
        "another boot",
        "nothing is known",
    ],
)
def test_what_was_looked_at_is_not_judged_again(
    checks: tuple[str, ...], looked: dict[str, Cursor], sequence: int
) -> None:
    assert begins(checks, looked) == at(sequence)


def test_a_log_whose_end_is_unknown_is_judged_again() -> None:
    assert begins((XID,), {XID: at(20)}, ends=None) == at(10)
