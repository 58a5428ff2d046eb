"""Divides collectors among several programs where a connection cannot carry one with all, and joins the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions, Program, files
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import field, record, replace


@record
class Parts:
    """Programs, each with its collectors, and the reasons why other collectors are in none."""

    programs: tuple[tuple[frozenset[str], Program], ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def parts(
    collectors: Iterable[str],
    options: ProbeOptions,
    further: Sequence[Path] = (),
    on_stdin: bool = True,
    longest: int | None = None,
) -> Parts:
    """The programs that run these collectors: one, or as many as needed of at most `longest` characters.

    Raises ValueError for a collector that does not exist.
    """

    def made(names: Sequence[str]) -> Program:
        return program(names, options, [file for file in further if file.stem in names], on_stdin)

    rest = sorted(set(collectors), key=lambda name: (files().get(name, ""), name))  # those of one kind share much
    whole = made(rest)
    if longest is None or _length(whole) <= longest:
        return Parts(((frozenset(rest), whole),))
    programs: list[tuple[frozenset[str], Program]] = []
    left_out: dict[str, str] = {}
    while rest:
        fits, over, tried = 0, len(rest) + 1, len(rest)
        while tried > fits:
            to_run = made(rest[:tried])
            if _length(to_run) <= longest:
                fits, best = tried, to_run
            else:
                over, size = tried, _length(to_run)
            tried = (fits + over) // 2
        if fits:
            programs.append((frozenset(rest[:fits]), best))
        else:
            left_out[rest[0]] = f"its program has {size} characters; its connection takes at most {longest}"
        rest = rest[fits or 1 :]
    return Parts(tuple(programs) or ((frozenset(), made(())),), left_out)


def joined(answers: Sequence[NodeEvidence], of: Parts) -> NodeEvidence:
    """Join one node's answers to the first of these programs; what an answer lacks is reported as cut."""
    came = [evidence for evidence in answers if not evidence.unreached]
    seconds = sum(evidence.seconds for evidence in answers)
    if not came:
        return replace(answers[0], seconds=seconds, answered=answers[-1].answered)
    collectors = {name: Collected(Status.CUT, detail=why) for name, why in of.left_out.items()}
    for number, (names, _) in enumerate(of.programs):
        evidence = answers[min(number, len(answers) - 1)]
        if evidence.unreached:
            why = f"its program, {number + 1} of {len(of.programs)}, was not answered: {_reason(evidence)}"
            collectors |= dict.fromkeys(names, Collected(Status.CUT, detail=why, too_long=evidence.too_long))
        else:
            collectors |= {name: collected for name, collected in evidence.collectors.items() if name in names}
    return replace(
        came[0],
        collectors=collectors,
        detail=next((evidence.detail for evidence in came if evidence.detail), ""),
        seconds=seconds,
        asked=answers[0].asked,
        answered=answers[-1].answered,
    )


def _reason(evidence: NodeEvidence) -> str:
    return f"{str(evidence.unreached and evidence.unreached.value).replace('_', ' ')}: {evidence.detail}"


def _length(to_run: Program) -> int:
    return len(to_run.command) + len(to_run.stdin)
