"""Signs in the output of a job, its scheduler and its nodes that show why the job ended (causes.toml)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import groupby

from clusterproof.plugins.catalog.rows import build, document, table
from clusterproof.plugins.core.record import record

FILE = "causes.toml"
HARDWARE, NETWORK, STORAGE, CODE = "hardware", "network", "storage", "code"
RESOURCES, STOPPED, UNKNOWN = "resources", "stopped", "unknown"
CAUSES = (HARDWARE, NETWORK, STORAGE, CODE, RESOURCES, STOPPED, UNKNOWN)
CAUSE, SUSPICION, CASCADE = "cause", "suspicion", "cascade"


@record
class Sign:
    """One kind of line; causes.toml explains the columns."""

    name: str
    says: tuple[str, ...]
    read_in: tuple[str, ...]
    role: str
    meaning: str
    source: str
    cause: str = ""
    probability: float = 0.0
    unless: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    hang: bool = False
    of_broken_gpu: bool = False
    of_stop: bool = False
    of_start: bool = False
    of_peer: bool = False
    unexplained: bool = False
    quoted: bool = False
    restart: str = ""
    proof: str = ""
    load: str = ""


@record
class Block:
    """One kind of traceback; causes.toml explains the columns."""

    name: str
    says: tuple[str, ...]
    source: str
    ends: tuple[str, ...] = ()
    sign: str = ""
    is_first: bool = False


@record
class Published:
    """Published statistics on how jobs end: the share of the `whole` by each cause; `of` says of what."""

    name: str
    of: str
    whole: float
    source: str
    hardware: float = 0.0
    network: float = 0.0
    storage: float = 0.0
    code: float = 0.0
    resources: float = 0.0
    stopped: float = 0.0
    unknown: float = 0.0

    @property
    def shares(self) -> dict[str, float]:
        """From 0 to 1, for the causes that it lists."""
        return {cause: count / self.whole for cause in CAUSES if (count := float(getattr(self, cause)))}


@record
class Limits:
    """Seconds for comparing times."""

    clocks_apart_s: float
    lag_s: float
    before_s: float
    teardown_s: float
    silent_s: float
    stale_s: float
    longest_wait_s: float
    source: str


@record
class Probability:
    """The probability of a verdict from a node's evidence, and the factor if no time shows the order."""

    established: float
    supported: float
    undated: float
    told_to_stop: float
    unordered: float
    source: str


@cache
def signs() -> Mapping[str, Sign]:
    """Every sign by name, in matching order."""
    return table(Sign, FILE, "sign", "name")


@cache
def blocks() -> Mapping[str, Block]:
    """Every kind of traceback by name, in matching order."""
    return table(Block, FILE, "block", "name")


@cache
def first_words() -> tuple[str, ...]:
    """Words of the first lines of tracebacks of every kind."""
    return tuple(phrase for block in blocks().values() for phrase in block.says)


def sign_of(where: str, line: str) -> Sign | None:
    """The first sign that matches a line of such a source."""
    if alone := _complete_lines(where).get(line.strip()):
        return alone
    if not _any_phrase(where).search(line):
        return None
    is_harmless = where == "output" and any(phrase in line for phrase in harmless())
    for phrase, sign in _sign_phrases(where):
        if is_harmless and sign.cause != HARDWARE:  # a job that retries continues with the broken GPU
            continue
        if phrase in line and _fits(sign, line):
            return sign
    return None


def _fits(sign: Sign, line: str) -> bool:
    """Whether the rest of a matching line also fits the sign."""
    has_context = not sign.beside or any(_has(line, part) for part in sign.beside)
    return has_context and not any(other in line for other in sign.unless)


def _has(line: str, part: str) -> bool:
    """Whether a line contains such words; ` … ` in them separates words that must follow in order."""
    before, _, behind = part.partition(" … ")
    _, separator, rest = line.partition(before)
    return bool(separator) and behind in rest


@cache
def harmless() -> tuple[str, ...]:
    """Words in output lines after which jobs continued to train: such a line is no sign."""
    return tuple(phrase for row in document(FILE)["harmless"].values() for phrase in row["says"])


@cache
def _sign_phrases(where: str) -> tuple[tuple[str, Sign], ...]:
    return tuple((phrase, sign) for sign in signs().values() if where in sign.read_in for phrase in sign.says)


@cache
def _any_phrase(where: str) -> re.Pattern[str]:
    """Matches every line with such a phrase: most have none, and one search by first letters is the fastest."""
    phrases = sorted({phrase for phrase, _ in _sign_phrases(where)})
    by_letter = (
        (first, "|".join(re.escape(phrase[1:]) for phrase in of))
        for first, of in groupby(phrases, lambda phrase: phrase[:1])
    )
    words = "|".join(f"{re.escape(first)}(?:{rest})" for first, rest in by_letter)
    return re.compile(words)


@cache
def _complete_lines(where: str) -> Mapping[str, Sign]:
    return {phrase: sign for sign in signs().values() if where in sign.read_in for phrase in sign.whole}


@cache
def limits() -> Limits:
    """Seconds for comparing times. Raises CatalogError."""
    return build(Limits, document(FILE)["limits"], f"{FILE}: limits", document(FILE)["sources"])


@cache
def probability() -> Probability:
    """Probabilities of verdicts from a node's evidence. Raises CatalogError."""
    return build(Probability, document(FILE)["probability"], f"{FILE}: probability", document(FILE)["sources"])


@cache
def published() -> Mapping[str, Published]:
    """Published statistics, by a short name. Raises CatalogError."""
    return table(Published, FILE, "published", "")


@cache
def hardware_of_gpu_time() -> float:
    """The share of a fleet's GPU time affected by hardware faults."""
    return float(document(FILE)["fleet"]["hardware_of_gpu_time"])


@cache
def evidence_of(check: str) -> str:
    """The cause indicated by a kernel log line that this check evaluates; empty if none."""
    rows = document(FILE)["evidence"]
    return next((cause for cause in CAUSES if check in rows.get(cause, ())), "")
