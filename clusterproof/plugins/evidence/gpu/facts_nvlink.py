"""The error counters and bit error rates of a GPU's NVLinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import UNSUPPORTED, table

BIT_ERROR_RATES = ("effective_ber", "symbol_ber")
MAX_WORD = 20  # characters of a name that a node gives to a counter or a link


@record
class NvlinkErrors:
    """An error counter or bit error rate of one NVLink; `count` is None if it could not be read."""

    kind: str
    link: str
    count: float | None

    @property
    def is_rate(self) -> bool:
        """Whether it is a bit error rate."""
        return self.kind in BIT_ERROR_RATES


def nvlink_errors(kinds: Mapping[str, object]) -> Iterator[NvlinkErrors]:
    """The counters that a node reports: non-zero or unreadable. Raises Incomplete if it has none of any kind."""
    supported = {kind: links for kind, links in kinds.items() if not is_unsupported(links)}
    if not supported:
        raise Incomplete("no NVLink error counter was reported", cause="not reported by the node")
    for kind, links in supported.items():
        yield from _of_kind(kind, links)


def is_unsupported(answer: object) -> bool:
    """Whether an answer means that the driver does not support the query."""
    return isinstance(answer, dict) and isinstance(word := answer.get("error"), str) and word in UNSUPPORTED


def _of_kind(kind: str, links: object) -> Iterable[NvlinkErrors]:
    """Those of one kind of counter, by link; one without a count if that kind is unreadable."""
    try:
        counts = table(links)
    except TypeError:
        return [NvlinkErrors(kind[:MAX_WORD], "", None)]
    return [NvlinkErrors(kind[:MAX_WORD], link[:MAX_WORD], _count(kind, count)) for link, count in counts.items()]


def _count(kind: str, data: object) -> float | None:
    if kind in BIT_ERROR_RATES:
        return data if type(data) is float and 0 <= data <= 1 else None
    return data if type(data) is int else None
