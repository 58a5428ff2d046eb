"""Work for a service outside, which may never answer: it gets its time, and the run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


def within(seconds: float, work: Sequence[Callable[[], str]]) -> list[str]:
    """What went wrong with each piece of work, all done side by side; empty where nothing did.

    Of an exception only its type is reported: its message, and its traceback, may hold a password.
    """
    data: dict[int, str] = {}

    def do(number: int, one: Callable[[], str]) -> None:
        try:
            data[number] = one()
        except Exception as problem:  # whatever it is, it costs this piece of work and no other
            data[number] = f"{type(problem).__name__}"

    # Daemons: what hangs is left behind when the process ends.
    threads = [threading.Thread(target=do, args=pair, daemon=True) for pair in enumerate(work)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return [data.get(number, f"no answer within {seconds:g} s") for number in range(len(work))]
