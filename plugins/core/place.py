"""Where in the code something broke: `file.py:12`, without what prints whole tracebacks."""

from __future__ import annotations

import os.path


def place_of(problem: BaseException) -> str:
    """The file and the line in which it was raised; empty for one that never was."""
    at = problem.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    return f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at else ""  # noqa: PTH119
