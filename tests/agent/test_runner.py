"""A misbehaving collector loses only its own evidence, and harms no other collector, the connection or the node."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions, files
from clusterproof.plugins.agent.run import MOSTLY_QUICK, QUICK, start
from clusterproof.plugins.agent.running import MAX_RECORD_BYTES, FinishedCollector, Running
from clusterproof.plugins.core.evidence import Collected, Status
from tests.builders.probed import PATH, PATIENT, SOON, probe, probe_node
from tests.testbed.needs import needs_frozen
from tests.testbed.node import entered, healthy_p5, with_stuck_nvml

pytestmark = pytest.mark.long

SETTLE_S = 600.0
HEADER = "import os, signal, sys, time\nfrom clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node\n"
FOR_EVER = "while True: time.sleep(1)"
CHILD = "pid = os.fork()\nif not pid:\n    os.execvp('sleep', ['sleep', '1000'])\n"


def collector_file(folder: Path, body: str, name: str = "odd") -> Path:
    """A collector for this test."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    path = folder / f"{name}.py"
    path.write_text(f'{HEADER}\n\ndef read(node: Node) -> object:\n    """Odd."""\n{lines}')
    return path


def odd(folder: Path, body: str, options: ProbeOptions = PATIENT) -> Collected:
    """The result of that collector, next to a healthy one that answered."""
    evidence = probe(["odd", "boot"], options, further=[collector_file(folder, body)])
    assert evidence.unreached is None, evidence.detail
    assert evidence.collectors["boot"].status is Status.READ
    return evidence.collectors["odd"]


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def ends(pid: int) -> bool:
    until = time.monotonic() + SETTLE_S
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_running(pid)


@pytest.mark.parametrize(
    "body",
    [
        FOR_EVER,
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FOR_EVER}",
        f"signal.signal(signal.SIGALRM, signal.SIG_IGN)\nfor n in (1, 2): os.close(n)\n{FOR_EVER}",
        "while True: pass",
        f"os.setpgid(0, 0) if os.getpgid(0) != os.getpid() else None\n{FOR_EVER}",
    ],
    ids=["sleeps", "ignores-sigterm", "ignores-sigalrm", "spins", "own-group"],
)
def test_a_collector_that_does_not_answer_is_killed_and_says_what_it_was_reading(body: str, tmp_path: Path) -> None:
    collector = odd(tmp_path, f"node.at('GPU 4: memory')\nnode.at('GPU 5: ECC')\n{body}", SOON)
    assert collector.status is Status.TIMED_OUT
    assert collector.detail == "GPU 5: ECC: no answer within 1 s"
    assert collector.value is None


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ("{}['driver']", Status.BROKE, "KeyError: 'driver' (odd.py line 7)"),
        ("raise SystemExit(3)", Status.BROKE, "SystemExit: 3"),
        ("import no_such_module", Status.BROKE, "No module named 'no_such_module'"),
        ("return {'value': float('nan')}", Status.BROKE, "ValueError"),
        ("return {1, 2}", Status.BROKE, "not JSON serializable"),
        ("loop = []\nloop.append(loop)\nreturn loop", Status.BROKE, "Circular reference"),
        ("def deep(): return deep()\ndeep()", Status.BROKE, "RecursionError"),
        (
            "node.at('NVML')\nos.kill(os.getpid(), signal.SIGSEGV)",
            Status.BROKE,
            "killed by signal 11",
        ),
        ("os._exit(3)", Status.BROKE, "ended without a word"),
        ("raise Absent('no such tool')", Status.ABSENT, "no such tool"),
        ("raise Denied('/dev/kmsg: for root')", Status.DENIED, "/dev/kmsg: for root"),
        ("open('/proc/1/mem/x')", Status.BROKE, "NotADirectoryError"),
        ("raise PermissionError(13, 'Permission denied', '/x')", Status.DENIED, "/x"),
        ("raise Broke('no sense')", Status.BROKE, "no sense"),
    ],
)
def test_a_collector_that_fails_says_why(body: str, status: Status, detail: str, tmp_path: Path) -> None:
    collector = odd(tmp_path, body)
    assert collector.status is status
    assert detail in collector.detail


def test_a_collector_with_a_mistake_in_its_text_is_its_own_evidence(tmp_path: Path) -> None:
    collector = odd(tmp_path, "return (")
    assert collector.status is Status.BROKE
    assert collector.detail.startswith("SyntaxError")


def test_a_collector_that_sends_without_end_is_stopped(tmp_path: Path) -> None:
    collector = odd(tmp_path, "return 'x' * 100_000_000")
    assert collector.status is Status.BROKE
    assert collector.detail == f"sent more than {MAX_RECORD_BYTES} bytes"


def test_a_collector_may_send_much(tmp_path: Path) -> None:
    assert odd(tmp_path, "return ['x' * 999] * 3000").value == ["x" * 999] * 3000


def test_a_collector_that_prints_disturbs_nothing(tmp_path: Path) -> None:
    collector = odd(
        tmp_path, "print('noise', flush=True)\nos.write(2, b'noise')\nos.system('echo noise; cat')\nreturn 1"
    )
    assert collector.value == 1


def test_a_collector_holds_nothing_of_the_connection_nor_of_its_neighbours(tmp_path: Path) -> None:
    body = """fds = map('/proc/self/fd/{}'.format, range(1024))
return [os.readlink(fd) for fd in fds if os.path.lexists(fd)]"""
    held = odd(tmp_path, body).value
    assert [name for name in held if not name.startswith("pipe:")] == ["/dev/null"] * 3
    assert len(held) == 4


def test_a_collector_leaves_no_core_behind(tmp_path: Path) -> None:
    assert odd(tmp_path, "import resource\nreturn resource.getrlimit(resource.RLIMIT_CORE)[0]").value in (0, 1)


@pytest.mark.parametrize("end", [FOR_EVER, "return pid", "os._exit(1)"], ids=["hangs", "answers", "dies"])
def test_what_a_collector_has_started_ends_with_it(end: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    odd(tmp_path, f"{CHILD}open({str(pid_file)!r}, 'w').write(str(pid))\n{end}", SOON)
    assert ends(int(pid_file.read_text()))


def test_a_process_that_has_left_its_collector_does_not_hold_the_connection(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"""pid = os.fork()
if not pid:
    os.setsid()
    open({str(pid_file)!r}, 'w').write(str(os.getpid()))
    os.execvp('sleep', ['sleep', '1000'])
while not os.path.exists({str(pid_file)!r}): time.sleep(0.01)
return 'left'"""
    with left_behind(pid_file):
        assert odd(tmp_path, body).value == "left"


@contextlib.contextmanager
def left_behind(pid_file: Path) -> Iterator[None]:
    try:
        yield
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "SIGINT", "nobody-listens"])
def test_when_the_run_is_stopped_the_collectors_end_too(how: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"open({str(pid_file)!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}}')\n{FOR_EVER}"
    sent = program(["odd"], ProbeOptions(collector_s=60.0), [collector_file(tmp_path, body)])
    shell = subprocess.Popen(
        ["/bin/sh", "-c", sent.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PATH": PATH}
    )
    with shell:
        assert shell.stdin
        assert shell.stdout
        shell.stdin.write(sent.stdin)
        shell.stdin.close()
        until = time.monotonic() + SETTLE_S
        while not (pid_file.exists() and len(pid_file.read_text().split()) == 2) and time.monotonic() < until:
            time.sleep(0.02)
        collector, runner = map(int, pid_file.read_text().split())
        if how == "nobody-listens":
            shell.stdout.close()
        else:
            os.kill(runner, getattr(signal, how))
        assert ends(collector)
        assert ends(runner)


def test_a_run_that_is_stopped_while_it_starts_collectors_knows_them_when_it_ends() -> None:
    running: list[Running] = []
    begun = FinishedCollector("odd", {"status": "read", "seconds": 0.0})

    def begin() -> list[Running]:
        signal.raise_signal(signal.SIGTERM)  # to this thread
        return [begun]

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        with pytest.raises(SystemExit):
            start(running, begin)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert running == [begun]


def test_a_collector_is_open_to_every_signal(tmp_path: Path) -> None:
    assert odd(tmp_path, "return len(signal.pthread_sigmask(signal.SIG_BLOCK, []))").value == 0


def test_the_answer_as_a_whole_has_a_deadline_also_when_nobody_takes_it(tmp_path: Path) -> None:
    class Hasty(ProbeOptions):
        def whole_s(self, *_: object) -> float:
            return 0.7

    sent = program(["odd"], Hasty(), [collector_file(tmp_path, "return os.urandom(900_000).hex()")])
    shell = subprocess.Popen(
        ["/bin/sh", "-c", sent.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PATH": PATH}
    )
    with shell:
        assert shell.stdin
        shell.stdin.write(sent.stdin)
        shell.stdin.close()
        assert shell.wait(SETTLE_S) == 0  # its pipe is full, so it can only give up


def test_many_collectors_cost_the_time_of_the_slowest(tmp_path: Path) -> None:
    files = [collector_file(tmp_path, f"time.sleep(0.5)\nreturn {n}", f"slow{n}") for n in range(12)]
    evidence = probe([file.stem for file in files], PATIENT, further=files)
    each = [collector.seconds for collector in evidence.collectors.values()]
    assert max(each) <= evidence.probe["seconds"] < sum(each) / 2


@needs_frozen
def test_a_collector_that_cannot_be_killed_is_abandoned_and_its_process_named() -> None:
    with entered(with_stuck_nvml(healthy_p5(), gpu=5)) as node:
        evidence = probe_node(node, ["nvml", "boot", "pci"], ProbeOptions(collector_s=0.7))
    nvml = evidence.collectors["nvml"]
    assert nvml.status is Status.STUCK
    assert nvml.detail.startswith("GPU 5: memory_used_mib memory_total_mib: SIGKILL does not end process ")
    assert "in state D" in nvml.detail
    assert evidence.collectors["boot"].status is evidence.collectors["pci"].status is Status.READ


@pytest.mark.parametrize(
    ("body", "options", "status", "detail"),
    [
        (f"node.at('bank 3')\n{FOR_EVER}", SOON, Status.TIMED_OUT, "bank 3: no answer within 1 s"),
        ("os.kill(os.getpid(), 9)", PATIENT, Status.BROKE, "killed by signal 9 while reading its start"),
        ("os._exit(0)", PATIENT, Status.BROKE, "ended without a word while reading its start"),
        ("return {1, 2}", PATIENT, Status.BROKE, "TypeError: Object of type set is not JSON serializable"),
        ("raise Denied('root reads it')", PATIENT, Status.DENIED, "root reads it"),
        ("return 1 / 0", PATIENT, Status.BROKE, "ZeroDivisionError: division by zero (edac.py line "),
    ],
    ids=["hangs", "is killed", "ends", "returns no JSON", "may not", "breaks"],
)
def test_one_of_the_collectors_that_share_a_process_costs_the_others_nothing(
    body: str, options: ProbeOptions, status: Status, detail: str, tmp_path: Path
) -> None:
    others = ("boot", "platform", "memory", "pci")
    collectors = probe(["edac", *others], options, further=[collector_file(tmp_path, body, "edac")]).collectors
    assert {name: collectors[name].status for name in others} == dict.fromkeys(others, Status.READ)
    assert collectors["edac"].status is status
    assert collectors["edac"].detail.startswith(detail)


def test_the_collectors_that_share_a_process_are_those_that_no_program_and_no_server_can_hold_up() -> None:
    for name in QUICK:
        text = Path(files()[name]).read_text(encoding="utf-8")
        assert not any(word in text for word in ("tools import", "touch import", "os.fork", "socket", "ctypes")), name


def test_a_collector_that_hangs_after_all_costs_those_it_shares_a_process_with_nothing(tmp_path: Path) -> None:
    alone = {name: probe([name], PATIENT).collectors[name].status for name in MOSTLY_QUICK}
    hung = collector_file(tmp_path, f"node.at('cmdline of 7')\n{FOR_EVER}", "jobs")
    collectors = probe(MOSTLY_QUICK, SOON, further=[hung]).collectors
    assert {name: collectors[name].status for name in collectors} == {**alone, "jobs": Status.TIMED_OUT}
    assert collectors["jobs"].detail == "cmdline of 7: no answer within 1 s"
