"""Reads JSON lines on steps by programs built on Trainer and Megatron: LLaMA-Factory and ms-swift.

A line has the number of steps, and the time since training began in whole seconds: a step is the mean over half a
minute. A run that resumes from a checkpoint appends to the file, and restarts its time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.training_run import CutFile, RunError, Step
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, integer
from clusterproof.plugins.training_run.formats.printed import number_or_none
from clusterproof.plugins.training_run.formats.trainer import Bar, may_be_none
from clusterproof.plugins.training_run.losses import Loss

NAME = "trainer_log.jsonl of LLaMA-Factory, logging.jsonl of ms-swift"
EXPECTED = 'expected {"current_steps": 5, "total_steps": 93, "loss": 5.7, "elapsed_time": "0:02:03"}'
_OF_SWIFT = ("global_step/max_steps", "steps[global_step/max_steps]", "iteration")
_LAST = "last_model_checkpoint"  # ms-swift's data on the whole run, in the last line
_STEPS = re.compile(r"([0-9]{1,12})/(-?[0-9]{1,12})")
_LOSSES = ("loss", "lm loss")
_CLOCK = re.compile(r"(?:([0-9]{1,5}) days?, )?([0-9]{1,6}):([0-9]{2}):([0-9]{2})")
_IN_WORDS = re.compile(r"(?:([0-9]{1,5})d )?(?:([0-9]{1,2})h )?(?:([0-9]{1,2})m )?([0-9]{1,2})s")


def is_of(head: bytes) -> bool:
    """Whether the first line of a file is one of these programs'."""
    first = head.lstrip().partition(b"\n")[0]
    is_of_factory = b'"current_steps": ' in first and b'"total_steps": ' in first
    is_of_swift = b'"elapsed_time": "' in first or b'"train_speed(' in first or b'"consumed_samples": ' in first
    return first.startswith(b"{") and (
        is_of_factory or (is_of_swift and any(_key(name) in first for name in _OF_SWIFT))
    )


def _key(name: str) -> bytes:
    return f'"{name}": "'.encode()


def read(path: RunFile) -> Iterator[Step | Loss | CutFile]:
    """The steps and losses of a file. Raises RunError."""
    lines = Lines(path)
    bar = Bar(0, is_of_training=True)
    is_broken = False
    for text in filter(str.strip, lines):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # of a run that was killed; a resumed one appends to it
            is_broken = True
            continue
        if not isinstance(line, dict):
            raise RunError(f"{lines.where}: {line!r:.60}; {EXPECTED}")
        if _LAST in line:
            continue
        step, total = _steps(line, lines.where)
        elapsed_s = _elapsed_s(line.get("elapsed_time"))
        if any(str(name).startswith("eval_") and value is not None for name, value in line.items()):
            bar.has_other = True
            continue
        if elapsed_s is not None and step:
            if total != bar.total or step < bar.n or elapsed_s < bar.elapsed_s:
                bar = Bar(total, is_of_training=True)
            yield from bar.take(step, elapsed_s)
        loss = next((number_or_none(line[name]) for name in _LOSSES if line.get(name) is not None), None)
        norm = number_or_none(line.get("grad_norm"))
        if loss is not None or norm is not None:
            yield Loss(0, step, loss, norm, kept_in=str(path), is_unclear=may_be_none(loss, norm))
    if is_broken:
        yield CutFile()


def _steps(line: Mapping[str, Any], where: str) -> tuple[int, int]:
    """The number of steps done, and in total; the latter is below 1 if unknown."""
    if "current_steps" in line:
        return integer(line["current_steps"], "current_steps", where), int(number_or_none(line.get("total_steps")) or 0)
    progress = next((str(line[name]) for name in _OF_SWIFT if name in line), "")
    match = _STEPS.fullmatch(progress)
    if not match:
        raise RunError(f"{where}: {progress!r:.60} is not how many steps of how many; {EXPECTED}")
    return int(match[1]), int(match[2])


def _elapsed_s(value: object) -> int | None:
    """The seconds in `1 day, 0:02:03` or `1d 0h 2m 3s`; None if a line has no such time."""
    match = _CLOCK.fullmatch(value) or _IN_WORDS.fullmatch(value) if isinstance(value, str) else None
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


FORMATS = (Format(NAME, is_of, read),)
