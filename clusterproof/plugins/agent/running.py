"""A collector in its forked process, as the runner sees it: running, being ended, or done."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Mapping
from mmap import mmap

from clusterproof.plugins.agent.process_group import detach, is_starved, kill, living
from clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node, TimedOut

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

ALARM_GRACE_S = 2  # a collector whose runner is gone exits by itself

MAX_RECORD_BYTES = 4 * 1024 * 1024
NOTE_BYTES = 1024
SO_FAR = "so_far"  # status of an intermediate record
GIVE_UP_S = 0.5  # from SIGKILL to abandoning a process


def live(module: str, node: Node, pipe: int, parts: Mapping[str, str] = {}) -> None:
    """Become the collector of that module: read, send, exit. Never returns.

    With `parts`, modules by collector name, runs each of those and sends their records as one value, by name.
    """
    try:
        detach((pipe,), signal.SIGALRM)
        signal.alarm(int(node.collector_s) + ALARM_GRACE_S)
        if parts:
            values = {name: _timed(of_collector, node) for name, of_collector in parts.items()}
            _send({"status": "read", "value": values}, pipe)
        else:
            node.so_far = lambda values: _send({"status": SO_FAR, "value": values}, pipe)  # type: ignore[method-assign]
            _send(_record(module, node), pipe)
    finally:
        os._exit(0)


def _timed(module: str, node: Node) -> dict[str, object]:
    began = time.monotonic()
    record = _record(module, node)
    return {"seconds": round(time.monotonic() - began, 4), **record}


def _record(module: str, node: Node) -> dict[str, object]:
    """The result of the collector's function (MODULE:FUNCTION, else MODULE's `read`), or its error."""
    try:
        name, _, function = module.partition(":")
        return {"status": "read", "value": getattr(importlib.import_module(name), function or "read")(node)}
    except Absent as why:
        return {"status": "absent", "detail": str(why)}
    except (Denied, PermissionError) as why:
        return {"status": "denied", "detail": str(why), **vars(why)}  # with the value that `each` has added
    except TimedOut as why:
        return {"status": "timed_out", "detail": str(why)}
    except Broke as why:
        return {"status": "broke", "detail": str(why)}
    except BaseException as crash:  # any failure is this collector's evidence and affects no other
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
    message = line.encode() + b"\n"
    while message:
        message = message[os.write(pipe, message) :]


class Running:
    """One running collector. `record` is empty until it has ended."""

    def __init__(self, name: str, node: Node, module: str) -> None:
        """Start the collector of that module; a shared note keeps what it is reading."""
        self.name = name
        self.collector_s = node.collector_s
        self.record: dict[str, object] = {}
        self.is_ending = False
        self.pipe = -1
        self._pid = 0
        self._status: int | None = None  # of the process, once it is reaped
        self._outcome = ("", "")  # the status and detail that it will have once killed
        self._record = bytearray()
        self._received = 0
        self._so_far: dict[str, object] = {}
        self._starved = False
        self._note = mmap(-1, NOTE_BYTES)  # shared: known even if the process hangs
        self._began = time.monotonic()
        self.deadline = self._began + self.collector_s
        try:
            self.pipe, writing = os.pipe()
            self._pid = os.fork()
        except OSError as problem:
            self._settle("broke", f"could not be started: {problem.strerror}")
            return
        if not self._pid:
            node.at = self._write_note
            self._live(module, node, writing)
        os.close(writing)

    def parts(self) -> list[Running]:
        """The collectors that it stands for, once it has answered or is being killed; only Together has any."""
        return []

    def reading(self) -> str:
        """What it last noted that it was reading."""
        return self._note[:].split(b"\0", 1)[0].decode("utf-8", "replace") or "its start"

    def late(self) -> str:
        """What to say if it does not answer by its deadline."""
        return f"{self.reading()}: no answer within {self.collector_s:g} s"

    def give_up(self) -> None:
        """Let it have timed out, if it has no record."""
        if not self.record:
            self._settle("timed_out", self.late())

    def receive(self) -> None:
        """Handle output on its pipe: more of its record, the end of the record, or the end of the process."""
        piece = os.read(self.pipe, 65536)
        self._record += piece
        self._received += len(piece)
        if b"\n" in piece:
            self._take_records()
        if not piece:
            self.end("broke", "")
        elif not self.record and self._received > MAX_RECORD_BYTES:
            self.end("broke", f"sent more than {MAX_RECORD_BYTES} bytes")

    def end(self, status: str, detail: str) -> None:
        """Kill it and everything it started; `has_ended` says when that is done, and makes the record."""
        self._starved = is_starved(self._pid, time.monotonic() - self._began)
        self.kill()
        self.is_ending = True
        self._outcome = (status, detail)
        self.deadline = time.monotonic() + GIVE_UP_S

    def has_ended(self) -> bool:
        """Whether everything it started is gone, or abandoned; then it has its record."""
        gone = self.reap() and not self._has_group()
        if not gone and time.monotonic() < self.deadline:
            return False
        left, waits = ("", []) if gone else living(self._pid)
        if left or self._status is None:
            self._settle("stuck", f"{self.reading()}: SIGKILL does not end {left or f'process {self._pid}'}")
            self.record["waits"] = waits
        else:
            self._settle(self._outcome[0], self._outcome[1] or self._death())
            if self._starved:
                self.record["starved"] = True
        return True

    def kill(self) -> None:
        """Send SIGKILL to its process and its group, unless the process is gone."""
        if self._pid and self._status is None:
            kill(self._pid)

    def reap(self) -> bool:
        """Reap its process without waiting; whether it is gone."""
        if self._pid and self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None or not self._pid

    def _live(self, module: str, node: Node, pipe: int) -> None:
        live(module, node, pipe)

    def _write_note(self, text: str) -> None:
        written = text.encode("utf-8", "replace")[: NOTE_BYTES - 1] + b"\0"
        self._note[: len(written)] = written

    def _take_records(self) -> None:
        *lines, self._record = self._record.split(b"\n")
        try:
            for line in lines:
                record = json.loads(line)
                if record["status"] == SO_FAR:
                    self._keep(record["value"])
                else:
                    self._settle(record["status"], record.get("detail", ""), record.get("value"))
        except (ValueError, KeyError):
            self._settle("broke", "sent no record")
        if self.record:
            self.kill()  # including anything it left behind

    def _keep(self, values: dict[str, object]) -> None:
        begins = any(key.startswith("all_") for key in values)
        for key, value in values.items():
            known = None if begins else self._so_far.get(key)
            self._so_far[key] = known + value if isinstance(known, list) and isinstance(value, list) else value

    def _settle(self, status: str, detail: str, value: object = None) -> None:
        self.record = {"status": status, "seconds": round(time.monotonic() - self._began, 4)}
        if detail:
            self.record["detail"] = detail
        if value is not None or self._so_far:
            self.record["value"] = self._so_far if value is None else value

    def _has_group(self) -> bool:
        try:
            os.killpg(self._pid, 0)
        except OSError:
            return False
        return True

    def _death(self) -> str:
        signalled = os.WTERMSIG(self._status or 0)
        how = f"killed by signal {signalled}" if signalled else "ended without a word"
        return f"{how} while reading {self.reading()}"


class SharedProcess(Running):
    """Fast collectors that share one process; each is started alone where that hangs or breaks, or it is late."""

    def __init__(self, nodes: dict[str, tuple[str, Node]], node: Node) -> None:
        """Start them with `node`; each has its module and its own node, in case it has to run alone."""
        self.nodes = nodes
        super().__init__("", node, "")

    def parts(self) -> list[Running]:
        """The collectors, with the records received, or started again."""
        records: Any = self.record.get("value") or {}
        return [
            FinishedCollector(name, records[name])
            if records.get(name, {}).get("status", "broke") not in ("timed_out", "broke")
            else Running(name, node, module)
            for name, (module, node) in self.nodes.items()
        ]

    def _live(self, module: str, node: Node, pipe: int) -> None:
        live(module, node, pipe, {name: of_collector for name, (of_collector, _) in self.nodes.items()})


class FinishedCollector(Running):
    """A collector that is done, without a process."""

    def __init__(self, name: str, record: dict[str, object]) -> None:
        """Store the record."""
        self.name = name
        self.record = record
        self._pid = 0
        self._status = None
