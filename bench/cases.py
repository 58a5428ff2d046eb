"""How often a case names the right cause, and how often it blames an innocent node.

Every labelled case of tests/case is written as a folder and read by `clusterproof case`; cases that were held back
while the rules were written are counted separately. The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.outcomes import Outcome, figures, table
from clusterproof.plugins.case import label
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.folder import collect
from scripts.arguments import Arguments
from tests.case.stories import ALL, LOSSES, SEED, LabelledCase, cases, held_aside
from tests.case.written import write

KUBERNETES = "kubernetes"
REAL = ("22.05", "24.11", KUBERNETES)  # versions of Slurm


def outcome(case: LabelledCase, folder: Path) -> Outcome:
    """What `clusterproof case` concludes from a case."""
    verdict = opened_case(collect(write(case, folder))).verdict
    guilty = label(case.node(case.story.node)) if case.story.node else ""
    return Outcome(
        case.name, case.story.name, case.story.label, verdict.cause, verdict.nodes, guilty, case.circumstance.kept
    )


def on_real_ones(runs: int, trainings: int, systems: Sequence[str]) -> list[Outcome]:
    """Conclusions about jobs that die on each of these systems: with all evidence, and from each job alone."""
    from bench.real_jobs import on_kubernetes, on_slurm  # they need root and the systems' programs

    outcomes: list[Outcome] = []
    for system in systems:
        ran = on_kubernetes(runs) if system == KUBERNETES else on_slurm(system, runs, trainings)
        print(f"{system}: {figures(ran)}")
        outcomes += ran
    return outcomes


def main(arguments: Sequence[str]) -> int:
    """Print both parts and their figures; return 0."""
    parser = Arguments("scripts/simulate cases", __doc__)
    parser.add_argument(
        "--real",
        nargs="?",
        type=int,
        const=1,
        default=0,
        metavar="N",
        help="also jobs that die on a real Slurm and Kubernetes, each N times (1); as root, ten minutes per repetition",
    )
    parser.add_argument(
        "--on", action="append", choices=REAL, help="where these jobs run (may be repeated); by default everywhere"
    )
    parser.add_argument(
        "--open", action="store_true", help="only the cases that rules are written from, with each error"
    )
    parser.add_argument(
        "--trainings", type=int, metavar="N", help="repetitions of jobs of eight ranks; by default like the others"
    )
    options = parser.parse_args(arguments)
    trainings = options.real if options.trainings is None else options.trainings
    real = on_real_ones(options.real, trainings, options.on or REAL) if options.real else []
    aside = held_aside(SEED)
    with TemporaryDirectory() as folder:
        every = [outcome(case, Path(folder)) for case in cases(SEED) if not (options.open and case.story.name in aside)]
    of_open = [tried for tried in every if tried.story not in aside]
    of_aside = [tried for tried in every if tried.story in aside]
    for kept in (ALL, *LOSSES):
        of_kept = [tried for tried in of_open if tried.kept == kept]
        print(f"{len(of_kept)} cases that rules were written by; kept: {kept}\n{table(of_kept)}\n{figures(of_kept)}\n")
    for tried in of_open if options.open else ():
        if not tried.is_right:
            print(f"  {tried.name}: {tried.expected} {tried.guilty}; said {tried.said} {', '.join(tried.blamed)}")
    if options.open:
        return 0
    whole_aside, lost_aside = (
        [tried for tried in of_aside if (tried.kept == ALL) is is_all] for is_all in (True, False)
    )
    print(f"{len(whole_aside)} cases held aside, of which all was kept\n{table(whole_aside)}\n{figures(whole_aside)}\n")
    print(
        f"{len(lost_aside)} cases held aside, of which not all was kept\n{table(lost_aside)}\n{figures(lost_aside)}\n"
    )
    whole, apart = figures(tried for tried in every if tried.kept == ALL), figures(whole_aside)
    all_of_them = figures(every)
    of_real = figures(real)
    if real:
        print(f"{len(real)} jobs that died on a real Slurm or Kubernetes\n{table(real)}\n{of_real}\n")
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
                "real_jobs_right": of_real["right"],
                "real_hardware_precision": of_real["hardware_precision"],
                "real_hardware_recall": of_real["hardware_recall"],
                "real_wrong_and_not_unknown": of_real["wrong_and_not_unknown"],
                "real_innocent_nodes_blamed": of_real["innocent_nodes_blamed"],
                "innocent_nodes_blamed": all_of_them["innocent_nodes_blamed"],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
