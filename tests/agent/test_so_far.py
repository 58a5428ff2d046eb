"""What a collector reported about some devices is kept, however it fails at the next."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions, module_of
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.run import collect
from clusterproof.plugins.agent.running import MAX_RECORD_BYTES, Running, SharedProcess
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.evidence.field import NEVER_READ
from tests.builders.probed import PATIENT, SOON, probe

pytestmark = pytest.mark.long

KNOWN = {"devices": [{"name": "a"}], "all_devices": [{"name": "a"}, {"name": "b"}]}
A, B = "return {'name': 'a'}", {"name": "b"}
HANGS = "while True: time.sleep(1)"


def ended(folder: Path, last: str, options: ProbeOptions = PATIENT, name: str = "odd", first: str = A) -> Collected:
    """The result of a collector of two devices, a and b, which are read by these lines."""
    path = folder / f"{name}.py"
    path.write_text(
        "import os, signal, time\nfrom clusterproof.plugins.agent.reading import Broke, Denied, Node, TimedOut\n\n\n"
        "def read(node: Node) -> object:\n"
        "    return node.each('devices', ['a', 'b'], lambda name: first(node) if name == 'a' else second(node))\n\n\n"
        f"def first(node: Node) -> object:\n    {first}\n\n\ndef second(node: Node) -> object:\n    {last}\n"
    )
    return probe([name, "boot", "platform"], options, further=[path]).collectors[name]


class Short(ProbeOptions):
    """Much less time for all than a collector has, as where starting collectors takes long."""

    def whole_s(self, *_: object) -> float:
        return 16.0


def test_what_was_read_is_sent_where_the_time_for_all_is_over(tmp_path: Path) -> None:
    last = ended(tmp_path, HANGS, Short(collector_s=600.0))
    assert (last.status, last.value) == (Status.TIMED_OUT, KNOWN)
    assert last.detail.endswith(": no answer within 600 s")


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (HANGS, Status.TIMED_OUT),
        ("raise TimedOut('too late')", Status.TIMED_OUT),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.BROKE),
        ("os._exit(0)", Status.BROKE),
        ("return {1, 2}", Status.BROKE),
    ],
    ids=["hangs", "is late", "is killed", "ends", "returns no JSON"],
)
@pytest.mark.parametrize("name", ["odd", "edac"], ids=["alone", "among those that share a process"])
def test_what_a_collector_said_before_it_failed_is_known(name: str, last: str, status: Status, tmp_path: Path) -> None:
    collector = ended(tmp_path, last, SOON if last == HANGS else PATIENT, name)
    assert (collector.status, collector.value) == (status, KNOWN), collector.detail


@pytest.mark.parametrize(
    ("first", "status", "why"),
    [
        ("raise PermissionError(13, 'no', '/a')", Status.DENIED, "PermissionError: [Errno 13] no: '/a'"),
        ("raise Denied('a is not yours')", Status.DENIED, "Denied: a is not yours"),
        ("raise OSError(5, 'gone', '/a')", Status.BROKE, "OSError: [Errno 5] gone: '/a'"),
        ("raise Broke('no sense')", Status.BROKE, "Broke: no sense"),
        ("return {}['driver']", Status.BROKE, "KeyError: 'driver'"),
    ],
)
@pytest.mark.parametrize("name", ["odd", "edac"], ids=["alone", "among those that share a process"])
def test_a_device_that_fails_hides_none_behind_it(
    first: str, status: Status, why: str, name: str, tmp_path: Path
) -> None:
    collector = ended(tmp_path, "return {'name': 'b'}", name=name, first=first)
    assert (collector.status, collector.value) == (status, {**KNOWN, "devices": [{"name": "a", NEVER_READ: why}, B]})


def test_a_list_that_is_begun_again_takes_the_place_of_what_was_kept(tmp_path: Path) -> None:
    again = "return node.each('devices', {'a': {'name': 'a', 'once': 1}}, lambda name: os._exit(0))"
    assert ended(tmp_path, again).value == {"devices": [], "all_devices": [{"name": "a", "once": 1}]}


def test_of_one_that_ends_within_a_line_the_lines_before_are_known(tmp_path: Path) -> None:
    lines = b'{"status": "so_far", "value": {"devices": [2]}}\n{"status": "so'
    pipe = "next(fd for fd in range(3, 99) if 'pipe' in os.path.realpath(f'/proc/self/fd/{fd}'))"
    collector = ended(tmp_path, f"os.write({pipe}, {lines!r}); os._exit(0)")
    assert (collector.status, collector.value) == (Status.BROKE, {**KNOWN, "devices": [{"name": "a"}, 2]})


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_line_that_ends_where_a_read_of_the_pipe_ends_is_taken(beyond: int, tmp_path: Path) -> None:
    characters = 65_536 + beyond - len('{"status": "so_far", "value": {"devices": [""]}}\n')
    text = f"node.so_far({{'devices': ['x' * {characters}]}}) or node.so_far({{'devices': [2]}}) or os._exit(0)"
    assert ended(tmp_path, text).value == {**KNOWN, "devices": [{"name": "a"}, "x" * characters, 2]}


def test_one_that_says_more_and_more_is_stopped(tmp_path: Path) -> None:
    collector = ended(tmp_path, "while True: node.so_far({'devices': ['x' * 99_999]})")
    assert collector.detail == f"sent more than {MAX_RECORD_BYTES} bytes"


def test_collectors_whose_shared_process_cannot_be_started_each_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("clusterproof.plugins.agent.running.os.fork", refused)
    running: list[Running] = [SharedProcess({name: (module_of(name), Node()) for name in ("boot", "pci")}, Node())]
    collect(running)
    monkeypatch.undo()
    details = {process.name: process.record["detail"] for process in running if process.name}
    assert details == dict.fromkeys(("boot", "pci"), "could not be started: Resource temporarily unavailable")
