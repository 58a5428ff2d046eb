"""Redacts a case: no names of a site, and no text of a job's programs."""

from __future__ import annotations

from clusterproof.plugins.case import Collected, Event, Fact, Job, Lead, Missing, MissingKind
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.redaction.pseudonyms import Pseudonyms

NAME = "case"
PROCESS_MESSAGES = {  # messages with the name of a program, or of a job in a control group's path
    "host.no_oom_kill": "killed a process for want of memory",
    "host.segfaults": "a process crashed",
}
WAITED_FOR = "is one for which others waited"
# Texts about these name no file, and nothing of a site but nodes.
ABSENT = (
    MissingKind.LOGS,
    MissingKind.LOGS_OF_SOME,
    MissingKind.RECORD,
    MissingKind.OUTPUT,
    MissingKind.OF_ANOTHER_TIME,
)


def redacted(case: Collected) -> Collected:
    """The same case, with placeholders for nodes and files; the job's output is reduced to the meaning of its signs."""
    pseudonyms = _Pseudonyms(case)
    fixed = tuple(Missing(pseudonyms.text(missing.words)) for missing in case.lacks if missing.kind in ABSENT)
    left = len(case.lacks) - len(fixed)
    node = pseudonyms.node
    return replace(
        case,
        name=NAME,
        job=Job("", case.job.state.split(" ")[0], case.job.exit_code, tuple(map(node, case.job.nodes)), case.job.ran),
        events=tuple(map(pseudonyms.event, case.events)),
        outlived=tuple(map(pseudonyms.event, case.outlived)),
        facts=tuple(map(pseudonyms.fact, case.facts)),
        leads=tuple(map(pseudonyms.lead, case.leads)),
        nodes_of_ranks={rank: node(name) for rank, name in case.nodes_of_ranks.items()},
        nodes_with_log=tuple(map(node, case.nodes_with_log)),
        nodes_in_part=tuple(map(node, case.nodes_in_part)),
        logs_begin={node(name): of for name, of in case.logs_begin.items()},
        nodes_checked=tuple(map(node, case.nodes_checked)),
        clocks={node(name): off for name, off in case.clocks.items() if node(name)},
        cluster=case.cluster and "k8s:",
        names={},
        lacks=(*fixed, *([Missing(f"{left} more, which name files")] if left else [])),
    )


class _Pseudonyms:
    """The placeholders for the names in one case."""

    def __init__(self, case: Collected) -> None:
        names = {*case.job.nodes, *case.nodes_with_log, *case.nodes_checked, *case.nodes_of_ranks.values()}
        names |= {event.node for event in (*case.events, *case.outlived)}
        names |= {fact.node for fact in case.facts} | {lead.node for lead in case.leads}
        self._nodes = {name: f"node-{number}" for number, name in enumerate(sorted(names - {""}), 1)}
        self._files: dict[str, str] = {}
        self._pseudonyms = Pseudonyms()
        for name, word in self._nodes.items():
            self._pseudonyms.know_host(name, word)

    def text(self, text: str) -> str:
        """A sentence that names nodes."""
        return self._pseudonyms.text(text)

    def node(self, name: str) -> str:
        """A node; empty if the case does not name it."""
        return self._nodes.get(name, "")

    def event(self, event: Event) -> Event:
        """A line of output."""
        return replace(event, words=event.row.meaning, source=self._source(event.source), node=self.node(event.node))

    def fact(self, fact: Fact) -> Fact:
        """Evidence of a node."""
        text = PROCESS_MESSAGES.get(fact.check) or self.text(fact.words)
        return replace(fact, words=text, source=self._source(fact.source), node=self.node(fact.node))

    def lead(self, lead: Lead) -> Lead:
        """A rank; a desync or a dump names groups by names of the job's."""
        return replace(lead, words=WAITED_FOR if lead.is_late else lead.words, node=self.node(lead.node), line="")

    def _source(self, text: str) -> str:
        file, _, line = text.rpartition(":")
        is_line = bool(file) and line.isdecimal()
        word = self._files.setdefault(file if is_line else text, f"file-{len(self._files) + 1}")
        return f"{word}:{line}" if is_line else word
