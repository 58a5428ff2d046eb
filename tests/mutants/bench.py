"""Tries mutants on cases in several processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType

from tests.mutants.cases import Case, forget_catalogue
from tests.mutants.mutations import Mutant, Place, installed

_benches: list[Bench] = []  # the one that this process's parent uses


@dataclass(frozen=True)
class Bench:
    """Mutants, the cases to try them on, and the functions that they change."""

    mutants: Sequence[Mutant]
    cases: Sequence[Case]
    live: Mapping[Place, Sequence[FunctionType]]

    def killers(self) -> Iterator[str]:
        """For each mutant, a case and check that distinguish it from the original; empty if none does."""
        _benches[:] = [self]
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as workers:
            yield from workers.imap(_killer, range(len(self.mutants)))

    def killer(self, mutant: Mutant) -> str:
        """The same for one mutant."""
        with installed(mutant, self.live):
            if mutant.is_of_catalogue:
                forget_catalogue(with_files=mutant.place[1] in ("document", "parse"))
            killer = next((f"{case.name}: {check}" for case in self.cases if (check := case.finds(mutant))), "")
        if mutant.is_of_catalogue:
            forget_catalogue(with_files=mutant.place[1] in ("document", "parse"))
        return killer


def _killer(number: int) -> str:
    return _benches[0].killer(_benches[0].mutants[number])
