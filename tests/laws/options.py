"""The options of `scripts/laws`; a word that selects nothing is an error that suggests similar names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.evaluation.all_checks import node_checks
from scripts.arguments import Arguments
from tests.faults import ALL_FAULTS
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault

LAWS = ("removal", "pairs", "order", "cut", "halves")


@dataclass(frozen=True)
class Options:
    """What to try."""

    laws: tuple[str, ...]
    faults: tuple[Fault | CapturedFault, ...]
    checks: tuple[str, ...]
    evidence: Path | None = None
    tsv: Path | None = None

    @property
    def faults_needed(self) -> tuple[Fault | CapturedFault, ...]:
        """The faults whose evidence the laws need: all for pairs, none for cuts, else those that chosen checks find."""
        if "pairs" in self.laws:
            return self.faults
        is_of_faults = self.laws != ("cut",)
        return tuple(fault for fault in self.faults if is_of_faults and not fault.expect.keys().isdisjoint(self.checks))

    @property
    def is_whole(self) -> bool:
        """Whether all faults and checks are tried."""
        return self.faults == ALL_FAULTS and len(self.checks) == len(node_checks())


def options_of(arguments: Sequence[str]) -> Options:
    """The options on a command line; a wrong one exits with a line that says what is right."""
    parser = Arguments("scripts/laws", "Tries the laws over the fault matrix, as root.")
    parser.add_argument("--law", default=LAWS, type=_laws, metavar="NAME", help=f"one of {', '.join(LAWS)}")
    parser.add_argument("--fault", default=ALL_FAULTS, type=_faults, metavar="WORDS", help="faults with these words")
    parser.add_argument("--check", default=tuple(node_checks()), type=_checks, metavar="ID", help="one, or all of gpu")
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="keeps probed evidence for further runs")
    parser.add_argument("--tsv", type=Path, metavar="FILE", help="write hidden findings as a table")
    chosen = parser.parse_args(arguments)
    return Options(chosen.law, chosen.fault, chosen.check, chosen.evidence, chosen.tsv)


def _laws(word: str) -> tuple[str, ...]:
    if word not in LAWS:
        raise argparse.ArgumentTypeError(f"{word!r} is no law{nearest(word, LAWS)}; there are {', '.join(LAWS)}")
    return (word,)


def _faults(part: str) -> tuple[Fault | CapturedFault, ...]:
    faults = tuple(fault for fault in ALL_FAULTS if part in fault.name)
    if not faults:
        near = nearest(part, [fault.name for fault in ALL_FAULTS])
        raise argparse.ArgumentTypeError(f"no fault's name has {part!r}{near}")
    return faults


def _checks(word: str) -> tuple[str, ...]:
    checks = tuple(name for name in node_checks() if word in (name, name.split(".")[0]))
    if not checks:
        known = [*node_checks(), *{name.split(".")[0] for name in node_checks()}]
        raise argparse.ArgumentTypeError(f"{word!r} is not a check{nearest(word, known)}")
    return checks
