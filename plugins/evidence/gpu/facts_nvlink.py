"""The error counters of a GPU's NVLinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import UNSUPPORTED, table

MAX_WORD = 20  # characters of a name that a node gives to a counter or a link


@record
class NvlinkErrors:
    """One error counter of one NVLink; `count` is None where it could not be read."""

    kind: str
    link: str
    count: int | None


def nvlink_errors(kinds: Mapping[str, object]) -> Iterator[NvlinkErrors]:
    """The counters that a node sends: not zero, or not to be read. Raises Incomplete where it has none of any kind."""
    supported = {kind: links for kind, links in kinds.items() if not _is_unsupported(links)}
    if not supported:
        raise Incomplete("no NVLink error counter was reported", cause="not reported by the node")
    for kind, links in supported.items():
        yield from _of_kind(kind, links)


def _is_unsupported(links: object) -> bool:
    return isinstance(links, dict) and links.get("error") in UNSUPPORTED


def _of_kind(kind: str, links: object) -> Iterable[NvlinkErrors]:
    """Those of one kind of counter, by link; one without a count where nothing of that kind could be read."""
    try:
        counts = table(links)
    except TypeError:
        return [NvlinkErrors(kind[:MAX_WORD], "", None)]
    return [
        NvlinkErrors(kind[:MAX_WORD], link[:MAX_WORD], count if type(count) is int else None)
        for link, count in counts.items()
    ]
