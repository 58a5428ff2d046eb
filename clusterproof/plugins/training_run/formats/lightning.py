"""What PyTorch Lightning's CSVLogger writes: `metrics.csv`, in which rows of training and of validation alternate.

The code that logs a loss names it, and a row has what was logged at its step: other cells are empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from clusterproof.plugins.training_run import Cut, RunError
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, whole
from clusterproof.plugins.training_run.formats.steps import NAMES, is_table
from clusterproof.plugins.training_run.losses import Loss

EXPECTED = "expected metrics.csv as Lightning's CSVLogger writes it"
_STEP = "step"
_ABOUT = {_STEP, "epoch"}  # in each row
_LOSSES, _NORMS = NAMES["loss"], NAMES["norm"]


def are_metrics(head: bytes) -> bool:
    """Whether a file that begins so has such columns, with a loss of training among them."""
    names = head.partition(b"\n")[0].decode("utf-8", "replace").strip().split(",")
    return set(names) >= _ABOUT and _column(names, _LOSSES) is not None and not is_table(head)


def read_metrics(path: RunFile) -> Iterator[Loss | Cut]:
    """Its losses, and norms of gradients. Raises RunError."""
    lines = Lines(path)
    rows = csv.reader(iter(lines), strict=True)
    begins = True
    try:
        names = next(rows, [])
        losses, norms, steps = (_column(names, known) for known in (_LOSSES, _NORMS, (_STEP,)))
        for row in rows:
            if len(row) != len(names):
                if lines.is_cut or not row:
                    yield from [Cut()] if row else []
                    continue
                raise RunError(f"{lines.where}: {len(row)} values; expected {len(names)}, as the first line names them")
            loss, norm = (_value(row, column, lines.where) for column in (losses, norms))
            if loss is not None or norm is not None:
                yield Loss(0, whole(row[steps or 0], _STEP, lines.where), loss, norm, begins=begins)
                begins = False
    except csv.Error as wrong:
        if not lines.is_cut:
            raise RunError(f"{lines.where}: {wrong}; {EXPECTED}") from None
        yield Cut()


def _column(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The first column of these; None where there is none."""
    return next((names.index(name) for name in wanted if name in names), None)


def _value(row: Sequence[str], column: int | None, where: str) -> float | None:
    if column is None or not row[column]:
        return None
    try:
        return float(row[column])
    except ValueError:
        raise RunError(f"{where}: {row[column]!r:.60} is no number; {EXPECTED}") from None


FORMATS = (Format("metrics.csv of PyTorch Lightning's CSVLogger", are_metrics, read_metrics, is_tried_last=True),)
