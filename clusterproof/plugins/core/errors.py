"""The base class of all errors shown to users, and where in the code an error was raised."""

from __future__ import annotations

import os.path

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120


class ClusterproofError(Exception):
    """The request cannot be carried out; the one-line message says what to do instead."""


def raised_at(problem: BaseException) -> str:
    """File and line in which the error was raised; empty if it never was.

    For an error inside a site's own check, this is the line in that check.
    """
    frames = list(_frames(problem.__traceback__))
    own = [frame for frame in frames if not frame[0].startswith((_PACKAGE, "<"))]
    file, line = (own or frames or [("", 0)])[-1]
    return f"{os.path.basename(file)}:{line}" if file else ""  # noqa: PTH119


def _frames(at: TracebackType | None) -> Iterator[tuple[str, int]]:
    while at:
        yield at.tb_frame.f_code.co_filename, at.tb_lineno
        at = at.tb_next
