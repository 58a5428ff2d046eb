"""Runs a process for each GPU, core or rank, and collects their answers, or why there are none."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

TYPE_CHECKING = False  # Python 3.8 cannot subscript what is in collections.abc
if TYPE_CHECKING:
    Job = Callable[[], dict[str, Any] | Iterator[dict[str, Any]]]  # its answer, or one after another, of which the last

READ_BYTES = 65536
MAX_WHY = 300
LINE_END = b"\n"


def forked(jobs: Sequence[Job], within_s: float) -> list[dict[str, Any]]:
    """Run all in parallel, each in its own process; one that does not end has the reason with its last answer."""
    children = [_started(job) for job in jobs]
    texts = {pipe: b"" for _, pipe in children}
    waiting = set(texts)
    until = time.monotonic() + within_s
    while waiting and time.monotonic() < until:
        for pipe in select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(pipe, READ_BYTES)
            texts[pipe] = _last(texts[pipe] + part)
            if not part:
                waiting.discard(pipe)
    answers = []
    for child, pipe in children:
        if pipe in waiting:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = 0 if pipe in waiting else os.waitpid(child, 0)[1]  # one that hangs in a driver cannot be waited for
        os.close(pipe)
        why = f"no answer in {within_s:.0f} s" if pipe in waiting else _ended(status)
        answers.append(_read(texts[pipe], why))
    return answers


def _started(job: Job) -> Any:
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    answer: dict[str, Any] = {}
    try:
        os.close(reads)
        made = job()
        for answer in [made] if isinstance(made, dict) else made:
            _write(writes, False, answer)
    except BaseException as problem:
        last = traceback.format_exception_only(type(problem), problem)[-1]
        answer = {**answer, "error": " ".join(last.split())[:MAX_WHY]}
    finally:
        try:
            _write(writes, True, answer)
        finally:
            os._exit(0)


def _write(pipe: int, is_whole: bool, answer: dict[str, Any]) -> None:
    with os.fdopen(pipe, "wb", closefd=False) as file:
        file.write(json.dumps([is_whole, answer]).encode() + LINE_END)


def _last(text: bytes) -> bytes:
    """The last complete line, and the beginning of the next."""
    return text[text.rfind(LINE_END, 0, max(text.rfind(LINE_END), 0)) + 1 :]


def _ended(status: int) -> str:
    how = f"signal {status & 127}" if status & 127 else f"exit status {status >> 8}"
    return f"its process ended with {how} and no answer"


def _read(text: bytes, why: str) -> dict[str, Any]:
    """The last answer; `why` there are no more, if it is incomplete."""
    line, _, _ = text.rpartition(LINE_END)
    try:
        is_whole, answer = json.loads(line)
    except ValueError:
        return {"error": why}
    return dict(answer) if is_whole else {**answer, "error": why}
