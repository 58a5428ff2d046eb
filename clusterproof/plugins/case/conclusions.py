"""What can be concluded of a case: its cause, how sure that is, and whose it was."""

from __future__ import annotations

from clusterproof.plugins.case import Event, Fact
from clusterproof.plugins.catalog.causes import UNKNOWN
from clusterproof.plugins.core.record import record

ESTABLISHED, SUPPORTED, CANDIDATE, COMPLETED = "established", "supported", "candidate", "completed"
OF_CRASH = 0.7  # that a crash which the kernel logged, of a library or of a kernel on a GPU, is the job's own code
DESYNC = "desync"  # of dumps: what ranks say of it in their own words came of it


@record
class CaseVerdict:
    """The cause, how sure it is, whose it was, and why.

    `standing`: established (the node's own evidence, ahead of all else, and a rank of it says the same), supported
    (the node's evidence alone), candidate (the words of the job or its scheduler), completed, unknown.
    `nodes` are blamed, `suspects` are to be tested; `against` is what speaks against it, or was found and is no cause.
    """

    cause: str
    probability: float
    standing: str
    why: str
    first: Event | Fact | None = None
    nodes: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    rank: int | None = None
    against: tuple[str, ...] = ()


def of_contest(event: Event, fact: Fact) -> CaseVerdict:
    """Unknown: the job's words and a node's evidence say two things, and neither is known to be the first."""
    reason = f"{event.row.meaning}, and {fact.node}: {fact.words}; no time tells which came first"
    return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, None, (), (fact.node,), event.rank)


def quoted(event: Event) -> str:
    """What an event means, and its own words where these say more."""
    meaning = event.row.meaning
    return f"{meaning}: {event.words}" if event.row.quoted and event.words != meaning else meaning
