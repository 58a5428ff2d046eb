"""How often a case names the right cause, and how often a node that was innocent.

Every labelled case of tests/case is written as a folder and read by `clusterproof case`; the part that rules were not
written by is counted by itself. The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from clusterproof.plugins.case import label
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.folder import collect
from clusterproof.plugins.catalog.causes import CAUSES, HARDWARE, UNKNOWN
from clusterproof.plugins.core.record import record
from scripts.arguments import Arguments
from tests.case.stories import ALL, LOSSES, SEED, LabelledCase, cases, held_aside
from tests.case.written import write


@record
class Outcome:
    """What was said of one case."""

    name: str
    story: str
    expected: str
    said: str
    blamed: tuple[str, ...]
    guilty: str
    kept: str

    @property
    def innocent(self) -> tuple[str, ...]:
        """The nodes that were blamed for their hardware and had nothing to do with it."""
        return tuple(node for node in self.blamed if self.said == HARDWARE and node != self.guilty)

    @property
    def is_right(self) -> bool:
        """Whether cause and, of hardware, the node are right."""
        return self.said == self.expected and (self.said != HARDWARE or self.blamed == (self.guilty,))


def outcome(case: LabelledCase, folder: Path) -> Outcome:
    """What `clusterproof case` says of a case."""
    verdict = opened_case(collect(write(case, folder))).verdict
    guilty = label(case.node(case.story.node)) if case.story.node else ""
    return Outcome(
        case.name, case.story.name, case.story.label, verdict.cause, verdict.nodes, guilty, case.circumstance.kept
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """The confusion table: a row for each label, a column for each verdict."""
    counts = Counter((one.expected, one.said) for one in outcomes)
    rows = [f"{'label':<10}" + "".join(f"{said:>10}" for said in CAUSES)]
    for expected in CAUSES:
        rows.append(f"{expected:<10}" + "".join(f"{counts[expected, said] or '.':>10}" for said in CAUSES))
    return "\n".join(rows)


def figures(outcomes: Iterable[Outcome]) -> dict[str, float | int]:
    """Precision and recall of hardware, and the errors that were not to *unknown*."""
    outcomes = list(outcomes)
    blamed = [one for one in outcomes if one.said == HARDWARE]
    guilty = [one for one in outcomes if one.expected == HARDWARE]
    right = [one for one in blamed if one.is_right]
    wrong = [one for one in outcomes if one.said not in (one.expected, UNKNOWN)]
    return {
        "cases": len(outcomes),
        "right": sum(one.is_right for one in outcomes),
        "hardware_precision": round(len(right) / len(blamed), 4) if blamed else 1.0,
        "hardware_recall": round(len(right) / len(guilty), 4) if guilty else 1.0,
        "wrong_and_not_unknown": len(wrong),
        "innocent_nodes_blamed": sum(len(one.innocent) for one in outcomes),
    }


def real_jobs() -> list[Outcome]:
    """What is said of jobs that die on a real Slurm of fake nodes."""
    from tests.case.jobs import JOBS, NODES, SETTINGS, TRAININGS, died  # they need root and Slurm's programs
    from tests.testbed.needs import without_torch
    from tests.testbed.node import healthy_cpu
    from tests.testbed.slurm import slurm

    if why := without_torch():
        print(f"no trainings of eight ranks: {why}")
    jobs = JOBS if why else (*JOBS, *TRAININGS)
    outcomes = []
    images = {name: healthy_cpu() for name in NODES}
    with slurm(images, settings=SETTINGS) as bed, TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        for job in jobs:
            said = died(bed, job, Path(folder))
            outcomes.append(Outcome(job.name, job.name, job.cause, said["cause"], tuple(said["nodes"]), "", ALL))
    return outcomes


def main(arguments: Sequence[str]) -> int:
    """Print both parts, and their figures. The exit code is 0."""
    parser = Arguments("scripts/simulate cases", __doc__)
    parser.add_argument(
        "--real", action="store_true", help="also jobs that die on a real Slurm; as root, twenty minutes"
    )
    parser.add_argument("--open", action="store_true", help="only the part that rules are written by, with each error")
    options = parser.parse_args(arguments)
    real = real_jobs() if options.real else []
    aside = held_aside(SEED)
    with TemporaryDirectory() as folder:
        every = [outcome(case, Path(folder)) for case in cases(SEED) if not (options.open and case.story.name in aside)]
    of_open = [one for one in every if one.story not in aside]
    of_aside = [one for one in every if one.story in aside]
    for kept in (ALL, *LOSSES):
        of_kept = [one for one in of_open if one.kept == kept]
        print(f"{len(of_kept)} cases that rules were written by; kept: {kept}\n{table(of_kept)}\n{figures(of_kept)}\n")
    for one in of_open if options.open else ():
        if not one.is_right:
            print(f"  {one.name}: {one.expected} {one.guilty}; said {one.said} {', '.join(one.blamed)}")
    if options.open:
        return 0
    whole_aside, lost_aside = ([one for one in of_aside if (one.kept == ALL) is is_all] for is_all in (True, False))
    print(f"{len(whole_aside)} cases held aside, of which all was kept\n{table(whole_aside)}\n{figures(whole_aside)}\n")
    print(
        f"{len(lost_aside)} cases held aside, of which not all was kept\n{table(lost_aside)}\n{figures(lost_aside)}\n"
    )
    whole, apart = figures(one for one in every if one.kept == ALL), figures(whole_aside)
    all_of_them = figures(every)
    if real:
        print(f"{len(real)} jobs that died on a real Slurm\n{table(real)}\n{figures(real)}\n")
    print(
        json.dumps(
            {
                "cases": len(every),
                "held_aside": len(of_aside),
                "hardware_precision": all_of_them["hardware_precision"],
                "hardware_recall": whole["hardware_recall"],
                "hardware_recall_with_losses": all_of_them["hardware_recall"],
                "held_aside_precision": figures(of_aside)["hardware_precision"],
                "held_aside_recall": apart["hardware_recall"],
                "wrong_and_not_unknown": all_of_them["wrong_and_not_unknown"],
                "real_jobs": len(real),
                "real_jobs_right": sum(one.is_right for one in real),
                "innocent_nodes_blamed": all_of_them["innocent_nodes_blamed"],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
