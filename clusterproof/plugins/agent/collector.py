"""The life of one collector: a forked process, in a session of its own, that sends its record over a pipe."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Mapping

from clusterproof.plugins.agent.detached import detach
from clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node, TimedOut

ALARM_GRACE_S = 2  # a collector whose runner is gone ends by itself


def live(module: str, node: Node, pipe: int, parts: Mapping[str, str] = {}) -> None:
    """Become the collector of that module: read, send, end. Never returns.

    With `parts`, modules by the names of their collectors, be each of those, and send their records as a value by name.
    """
    try:
        detach((pipe,), signal.SIGALRM)
        signal.alarm(int(node.collector_s) + ALARM_GRACE_S)
        if parts:
            data = {name: _timed(of_collector, node) for name, of_collector in parts.items()}
            _send({"status": "read", "value": data}, pipe)
        else:
            _send(_record(module, node), pipe)
    finally:
        os._exit(0)


def _timed(module: str, node: Node) -> dict[str, object]:
    began = time.monotonic()
    record = _record(module, node)
    return {"seconds": round(time.monotonic() - began, 4), **record}


def _record(module: str, node: Node) -> dict[str, object]:
    """What the collector's file returns, or how it failed."""
    try:
        collector = importlib.import_module(module)
        return {"status": "read", "value": collector.read(node)}
    except Absent as why:
        return {"status": "absent", "detail": str(why)}
    except (Denied, PermissionError) as why:
        return {"status": "denied", "detail": str(why)}
    except TimedOut as why:
        return {"status": "timed_out", "detail": str(why)}
    except Broke as why:
        return {"status": "broke", "detail": str(why)}
    except BaseException as crash:  # whatever it is, it is this collector's evidence and nobody else's
        return _broke(crash)


def _broke(crash: BaseException) -> dict[str, object]:
    at = crash.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    where = f" ({at.tb_frame.f_code.co_filename} line {at.tb_lineno})" if at else ""
    return {"status": "broke", "detail": f"{type(crash).__name__}: {crash}{where}"[:1000]}


def _send(record: dict[str, object], pipe: int) -> None:
    """Write the record as one line of JSON."""
    try:
        line = json.dumps(record, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as crash:
        line = json.dumps(_broke(crash))
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]
