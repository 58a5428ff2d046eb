"""What each Xid and SXid code means, and how it is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, build, document, table
from clusterproof.plugins.core.record import record

FILE = "xid.toml"
KINDS = ("application", "engine", "driver", "memory", "bus", "nvlink", "information", "unknown")
VERDICTS = (
    *("none", "concern", "fail", "repeat-concern", "repeat-fail"),
    *("by-remap", "by-severity", "by-text", "by-reset", "unless-no-reset"),
)


@record
class Xid:
    """One Xid code. `clears` are codes that it ends; `disagreement` says which sources evaluate it otherwise."""

    code: int
    name: str
    kind: str
    verdict: str
    action: str
    source: str
    clears: tuple[int, ...] = ()
    disagreement: str = ""


@record
class _Row:
    name: str
    kind: str
    verdict: str
    action: str
    source: str
    clears: tuple[int, ...] = ()


@record
class SXids:
    """How SXids are evaluated; `fatal` are the codes that are fatal where their line does not say so.

    `thermal_end` says that `thermal_start` is over on its switch, and is no finding itself.
    """

    fatal: tuple[int, ...]
    thermal_start: int
    thermal_end: int
    fatal_action: str
    other_action: str
    source: str


@cache
def xids() -> Mapping[int, Xid]:
    """Every row of xid.toml by its code. Raises CatalogError."""
    disagreement = document(FILE)["disagreement"]
    unused = set(disagreement) - set(document(FILE)["xid"])
    if unused:
        raise CatalogError(f"{FILE}: disagreement {min(unused)}: there is no such row")
    return {int(code): _xid(code, row, disagreement) for code, row in table(_Row, FILE, "xid").items()}


def xid(code: int) -> Xid:
    """The row of an Xid; a code that the catalogue does not know is a concern."""
    return xids().get(code) or Xid(
        code=code,
        name="unknown Xid",
        kind="unknown",
        verdict="concern",
        action="look it up in NVIDIA's Xid catalogue",
        source="policy",
    )


@cache
def sxids() -> SXids:
    """How SXids are evaluated. Raises CatalogError."""
    data = document(FILE)
    return build(SXids, data["sxid"], f"{FILE}: sxid", data["sources"])


def _xid(code: str, row: _Row, disagreement: Mapping[str, str]) -> Xid:
    if not code.isdecimal() or row.kind not in KINDS or row.verdict not in VERDICTS:
        raise CatalogError(
            f"{FILE}: xid {code}: {row.kind!r} and {row.verdict!r}; "
            f"expected one of {', '.join(KINDS)} and one of {', '.join(VERDICTS)}"
        )
    return Xid(
        code=int(code),
        name=row.name,
        kind=row.kind,
        verdict=row.verdict,
        action=row.action,
        source=row.source,
        clears=row.clears,
        disagreement=disagreement.get(code, ""),
    )
