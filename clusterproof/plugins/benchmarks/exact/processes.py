"""A process for each GPU, core or rank: what each of them answers, or why it does not."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

READ_BYTES = 65536
MAX_WHY = 300


def forked(jobs: Sequence[Callable[[], dict[str, Any]]], within_s: float) -> list[dict[str, Any]]:
    """Run all of them at once, each in a process of its own; `{"error": …}` where no answer comes."""
    children = [_started(job) for job in jobs]
    texts = {pipe: b"" for _, pipe in children}
    waiting = set(texts)
    until = time.monotonic() + within_s
    while waiting and time.monotonic() < until:
        for pipe in select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(pipe, READ_BYTES)
            texts[pipe] += part
            if not part:
                waiting.discard(pipe)
    answers = []
    for child, pipe in children:
        if pipe in waiting:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = 0 if pipe in waiting else os.waitpid(child, 0)[1]  # one that hangs in a driver cannot be waited for
        os.close(pipe)
        answers.append({"error": f"no answer in {within_s:.0f} s"} if pipe in waiting else _read(texts[pipe], status))
    return answers


def _started(job: Callable[[], dict[str, Any]]) -> Any:
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    answer: dict[str, Any] = {}
    try:
        os.close(reads)
        answer = job()
    except BaseException as problem:
        last = traceback.format_exception_only(type(problem), problem)[-1]
        answer = {"error": " ".join(last.split())[:MAX_WHY]}
    finally:
        with os.fdopen(writes, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)


def _read(text: bytes, status: int) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        how = f"signal {status & 127}" if status & 127 else f"exit status {status >> 8}"
        return {"error": f"its process ended with {how} and no answer"}
    return answer
