"""A case without the names of a site: of its nodes, files and jobs, and without the words of its programs."""

from __future__ import annotations

from clusterproof.plugins.case.records import Collected, Event, Fact, Job, Lead
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.redaction.pseudonyms import Pseudonyms

NAME = "case"
OF_PROCESSES = {  # lines that have the name of a program, or that of a job in the path of a group
    "host.no_oom_kill": "killed a process for want of memory",
    "host.segfaults": "a process crashed",
}
WAITED_FOR = "is one for which others waited"
ABSENT = ("no kernel log of ", "no record of the job by ", "no output of the job", "evidence of another time ")


def redacted(case: Collected) -> Collected:
    """The same case. Nodes and files have words in their place; of the job's output stays what its signs mean."""
    words = Pseudonyms()
    names = sorted(
        {*case.job.nodes, *case.nodes_with_log, *case.nodes_of_ranks.values()}
        | {one.node for one in (*case.events, *case.outlived)}
        | {one.node for one in case.facts}
        | {one.node for one in case.leads}
    )
    nodes = {name: f"node-{number}" for number, name in enumerate(filter(None, names), 1)}
    for name, word in nodes.items():
        words.know_host(name, word)
    files: dict[str, str] = {}

    def source(text: str) -> str:
        file, _, line = text.rpartition(":")
        is_line = bool(file) and line.isdecimal()
        word = files.setdefault(file if is_line else text, f"file-{len(files) + 1}")
        return f"{word}:{line}" if is_line else word

    def node(name: str) -> str:
        return nodes.get(name, "")

    def event(one: Event) -> Event:
        return replace(one, words=one.row.meaning, source=source(one.source), node=node(one.node))

    def fact(one: Fact) -> Fact:
        said = next((means for check, means in OF_PROCESSES.items() if check == one.check), None)
        return replace(
            one, words=words.text(one.words) if said is None else said, source=source(one.source), node=node(one.node)
        )

    def lead(one: Lead) -> Lead:
        words = WAITED_FOR if one.is_late else one.words  # of a desync or a dump, whose groups have names of the job's
        return replace(one, words=words, node=node(one.node), line="")

    fixed = tuple(words.text(one) for one in case.missing if one.startswith(ABSENT))
    left = len(case.missing) - len(fixed)
    return replace(
        case,
        name=NAME,
        job=Job("", case.job.state.split(" ")[0], case.job.exit_code, tuple(map(node, case.job.nodes)), case.job.ran),
        events=tuple(map(event, case.events)),
        outlived=tuple(map(event, case.outlived)),
        facts=tuple(map(fact, case.facts)),
        leads=tuple(map(lead, case.leads)),
        nodes_of_ranks={rank: node(name) for rank, name in case.nodes_of_ranks.items()},
        nodes_with_log=tuple(map(node, case.nodes_with_log)),
        clocks={node(name): off for name, off in case.clocks.items() if name in nodes},
        cluster=case.cluster and "k8s:",
        names={},
        missing=(*fixed, *([f"{left} more, which name files"] if left else [])),
    )
