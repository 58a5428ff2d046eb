"""What lines of the kernel log mean: errors of the EFA driver, and whose crashes matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, build, document, table

VERDICTS = ("fail", "concern")


@dataclass(frozen=True, slots=True)
class EfaError:
    """One kind of line of the EFA driver: what it contains, what that means and how it is judged."""

    words: str
    verdict: str
    meaning: str
    source: str


@dataclass(frozen=True, slots=True)
class Crashes:
    """Whose crashes matter, by how names begin."""

    processes: tuple[str, ...]
    libraries: tuple[str, ...]
    source: str


def efa_error(line: str) -> EfaError | None:
    """The row that a line of the EFA driver fits, if it tells of an error."""
    small = line.lower()
    return next((row for row in _efa_errors().values() if row.words.lower() in small), None)


def is_crash_of_training(process: str, library: str) -> bool:
    """Whether the crash of a process, in a library, matters for training."""
    crashes = _crashes()
    return process.lower().startswith(crashes.processes) or library.lower().startswith(crashes.libraries)


@cache
def _efa_errors() -> Mapping[str, EfaError]:
    rows = table(EfaError, "efa_errors.toml", "efa_error")
    wrong = [name for name, row in rows.items() if row.verdict not in VERDICTS]
    if wrong:
        raise CatalogError(f"efa_errors.toml: {wrong[0]}: {rows[wrong[0]].verdict!r}; expected fail or concern")
    return rows


@cache
def _crashes() -> Crashes:
    told = document("crashes.toml")
    return build(Crashes, told["crash"], "crashes.toml: crash", told["sources"])
