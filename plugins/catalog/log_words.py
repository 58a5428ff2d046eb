"""What lines of the kernel log mean: errors of the EFA and ENA drivers, and whose crashes matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, build, document, table
from clusterproof.plugins.core.record import record

VERDICTS = ("fail", "concern")


@record
class EfaError:
    """One kind of line of the EFA or ENA driver: what it contains, what that means and its verdict."""

    words: str
    verdict: str
    meaning: str
    source: str


@record
class Crashes:
    """Whose crashes matter, by how names begin."""

    processes: tuple[str, ...]
    libraries: tuple[str, ...]
    source: str


def efa_error(line: str) -> EfaError | None:
    """The row that a line of the EFA driver fits, if it reports an error."""
    return _first(_by_words("efa_error"), line)


def ena_error(line: str) -> EfaError | None:
    """The row that a line of the ENA driver fits, if it reports an error."""
    return _first(_by_words("ena_error"), line)


def _first(rows: Sequence[tuple[str, EfaError]], line: str) -> EfaError | None:
    small = line.lower()
    return next((row for words, row in rows if words in small), None)


def is_crash_of_training(process: str, library: str) -> bool:
    """Whether the crash of a process, in a library, matters for training."""
    crashes = _crashes()
    return process.lower().startswith(crashes.processes) or library.lower().startswith(crashes.libraries)


@cache
def _by_words(kind: str) -> Sequence[tuple[str, EfaError]]:
    return [(row.words.lower(), row) for row in _rows(kind).values()]


@cache
def _rows(kind: str) -> Mapping[str, EfaError]:
    rows = table(EfaError, "efa_errors.toml", kind)
    wrong = [name for name, row in rows.items() if row.verdict not in VERDICTS]
    if wrong:
        raise CatalogError(f"efa_errors.toml: {wrong[0]}: {rows[wrong[0]].verdict!r}; expected fail or concern")
    return rows


@cache
def _crashes() -> Crashes:
    data = document("crashes.toml")
    return build(Crashes, data["crash"], "crashes.toml: crash", data["sources"])
