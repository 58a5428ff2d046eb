"""Samples of links, mounts and processes: complete at the first tick after a change, and absent in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.host import collect_processes_samples as processes
from clusterproof.plugins.evidence.network.collect_network_samples import Sampler as Network
from clusterproof.plugins.evidence.storage import collect_mounts
from clusterproof.plugins.evidence.storage import collect_mounts_samples as mounts
from clusterproof.plugins.evidence.storage.collect_lustre_samples import Sampler as Lustre
from clusterproof.plugins.evidence.storage.collect_touch import LEFT, UNKNOWN, are_left

IB, NET = "sys/class/infiniband/mlx5_0", "sys/class/net/ib0"
LINKS = {
    f"{IB}/ports/1/state": "4: ACTIVE\n",
    f"{IB}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    f"{NET}/mtu": "2044\n",
    f"{NET}/operstate": "up\n",
    f"{NET}/carrier": "1\n",
    f"{NET}/flags": "0x1003\n",
    f"{NET}/device/x": "",
}
FILES = Path("/proc/self/fd")
MOUNTS = "30 1 0:60 / /fsx rw,noatime - lustre 10.1.2.3@tcp:/x rw,flock\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {**LINKS, "proc/1/mountinfo": MOUNTS}.items():
        write(tmp_path / path, text)
    return tmp_path


@pytest.fixture(autouse=True)
def at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "LOOK_S", 0.0)
    monkeypatch.setattr(processes, "LOOK_S", 0.0)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def facts(sampler: Any, root: Path) -> dict[str, Any]:
    """What the next sample reports."""
    sampled: dict[str, Any] = sampler.sample(Node(str(root))).get("facts", {})
    return sampled


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        (f"{IB}/ports/1/state", "1: DOWN\n", ["rdma"]),
        (f"{IB}/ports/1/rate", "100 Gb/sec (4X EDR)\n", ["rdma"]),
        (f"{NET}/carrier", "0\n", ["interfaces"]),
        (f"{NET}/flags", "0x1002\n", ["interfaces"]),
        (f"{NET}/mtu", "1500\n", ["interfaces"]),
        ("sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n", ["rdma"]),
        ("sys/class/net/veth0/mtu", "1500\n", []),
    ],
)
def test_a_link_that_changes_is_told_by_the_next_sample(root: Path, path: str, text: str, told: list[str]) -> None:
    sampler = Network(Node(str(root)))
    assert sorted(facts(sampler, root)) == ["interfaces", "rdma"]
    assert facts(sampler, root) == {}
    write(root / path, text)
    assert list(facts(sampler, root)) == told
    assert facts(sampler, root) == {}


def seen(**values: Any) -> dict[str, Any]:
    """The `mounts` collector's report on one file system."""
    sizes = {"total_kib": 1000, "free_kib": 500, "inodes": 100, "inodes_free": 90, "read_s": 0.001}
    return {"mounts": [{"path": "/fsx", "alive": "yes", **sizes, **values}], "fstab": [], "left_out": 0}


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([seen(), seen(), seen(read_s=0.5, free_kib=499)], [True, False, True]),
        ([seen(), seen(free_kib=499), seen(free_kib=498)], [True, True, False]),  # a percent less, once
        ([seen(), seen(alive="hung"), seen(alive="hung"), seen()], [True, False, True, True]),
        ([seen(), seen(alive="hung"), seen()], [True, False, False]),
        ([seen(), seen(alive="ESTALE")], [True, True]),
    ],
)
def test_a_file_system_that_hangs_is_told_by_the_second_look_and_all_else_by_the_first(
    root: Path, monkeypatch: pytest.MonkeyPatch, answers: list[Any], told: list[bool]
) -> None:
    left, sampler = list(answers), mounts.Sampler(Node(str(root)))
    monkeypatch.setattr(mounts, "look", lambda *_: left.pop(0))
    assert [bool(facts(sampler, root)) for _ in answers] == told


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (MOUNTS.replace("rw,noatime", "ro,noatime"), True),
        ("", True),
        (f"{MOUNTS}31 1 0:61 / /var/lib/docker/overlay2/a/merged rw - overlay overlay rw\n", False),
    ],
)
def test_what_is_mounted_otherwise_is_told_between_two_looks_and_no_container(
    root: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_told: bool
) -> None:
    monkeypatch.setattr(mounts, "LOOK_S", 1e9)
    sampler = mounts.Sampler(Node(str(root)))
    assert facts(sampler, root)
    (root / "proc/1/mountinfo").write_text(text)
    assert bool(facts(sampler, root)) is is_told


def import_of(root: Path, state: str, name: str = "x-OST0000-osc-ff") -> None:
    """A connection to a Lustre server, as the client shows it."""
    write(root / f"proc/fs/lustre/osc/{name}/import", f"import:\n    name: {name}\n    state: {state}\n")


def test_a_connection_to_a_server_of_lustre_is_told_that_is_lost_at_two_looks_and_when_it_is_back(root: Path) -> None:
    write(root / "proc/fs/lustre/llite/x-ff/stats", "")
    write(root / "proc/fs/lustre/health_check", "healthy\n")
    import_of(root, "FULL")
    sampler, reported = Lustre(Node(str(root))), []
    for state in ("FULL", "IDLE", "CONNECTING", "FULL", "DISCONN", "CONNECTING", "DISCONN", "FULL", "FULL"):
        import_of(root, state)
        sampled = facts(sampler, root).get("lustre")
        reported.append(sampled and [client["state"] for client in sampled["clients"]])
    assert reported == [["FULL"], None, None, None, None, ["CONNECTING"], None, ["FULL"], None]
    write(root / "proc/fs/lustre/health_check", "NOT HEALTHY\n")
    assert facts(sampler, root)["lustre"]["health"] == "NOT HEALTHY"


AUTOMATIC = """29 1 0:59 / /net rw - autofs /etc/auto.net rw
30 1 0:60 / /net/a rw - nfs4 10.0.0.7:/a rw
31 1 0:61 / /fsx rw - lustre 10.1.2.3@tcp:/x rw
"""


def test_what_autofs_has_mounted_is_touched_once_and_so_may_expire(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "proc/1/mountinfo").write_text(AUTOMATIC)
    looks: list[list[str]] = []
    answers = {"/net/a": "yes", "/net/b": "hung"}

    def touch_all(_: Node, mounts: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
        looks.append([path for path, _ in mounts])
        return [{**UNKNOWN, "alive": answers.get(path, "yes")} for path, _ in mounts]

    monkeypatch.setattr(collect_mounts, "touch_all", touch_all)
    monkeypatch.setattr(mounts, "are_left", lambda: False)  # left by an earlier test; the kernel has yet to end it
    sampler = mounts.Sampler(Node(str(root)))
    for _ in range(3):
        facts(sampler, root)
    assert looks == [["/fsx", "/net/a"], ["/fsx"], ["/fsx"]]
    (root / "proc/1/mountinfo").write_text(AUTOMATIC.replace("/net/a", "/net/b").replace("60", "62"))
    for _ in range(2):
        facts(sampler, root)
    assert looks[3:] == [["/fsx", "/net/b"]] * 2  # a mount that does not answer is asked again


@pytest.fixture
def hanging() -> Iterator[int]:
    """A process that the last sample left behind."""
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    LEFT.add(pid)
    yield pid
    if LEFT:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        LEFT.clear()


@pytest.mark.long
def test_while_a_process_of_the_last_look_hangs_no_other_is_sent_there(
    root: Path, monkeypatch: pytest.MonkeyPatch, hanging: int
) -> None:
    touched = []
    monkeypatch.setattr(mounts, "look", lambda _, known: touched.append("/fsx" not in known) or seen(alive="hung"))
    sampler = mounts.Sampler(Node(str(root)))
    sampler._text, sampler._facts = MOUNTS, seen(alive="hung")
    assert facts(sampler, root)["mounts"]["mounts"][0]["alive"] == "hung"  # the second sample
    assert touched == [False]
    for number in range(2 * mounts.MAX_LOOKS):
        (root / "proc/1/mountinfo").write_text(f"{MOUNTS}31 1 0:61 / /data{number} rw - nfs4 10.0.0.7:/x rw\n")
        facts(sampler, root)
    assert sum(touched) == mounts.MAX_LOOKS
    os.kill(hanging, signal.SIGKILL)
    os.waitid(os.P_PID, hanging, os.WEXITED | os.WNOWAIT)
    facts(sampler, root)
    assert sum(touched) == mounts.MAX_LOOKS + 1


@pytest.mark.long
def test_beside_a_file_system_that_hangs_the_others_are_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch, hanging: int
) -> None:
    (root / "proc/1/mountinfo").write_text(f"{MOUNTS}31 1 0:61 / /data rw - nfs4 10.0.0.7:/x rw\n")
    looks: list[list[str]] = []
    free_kib = 500

    def touch_all(_: Node, paths: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
        looks.append([path for path, _ in paths])
        sizes = {"total_kib": 1000, "free_kib": free_kib, "inodes": 100, "inodes_free": 90, "read_s": 0.001}
        return [{**UNKNOWN, "alive": "hung"} if path == "/fsx" else {**sizes, "alive": "yes"} for path, _ in paths]

    monkeypatch.setattr(collect_mounts, "touch_all", touch_all)
    sampler = mounts.Sampler(Node(str(root)))
    facts(sampler, root)
    facts(sampler, root)
    free_kib = 0
    shown = {mount["path"]: mount for mount in facts(sampler, root)["mounts"]["mounts"]}
    assert (shown["/data"]["free_kib"], shown["/fsx"]["alive"]) == (0, "hung")
    assert [sorted(paths) for paths in looks] == [["/data", "/fsx"], ["/data"], ["/data"]]


@pytest.mark.long
def test_looking_at_mounts_leaves_no_file_open_and_no_process(root: Path) -> None:
    sampler = mounts.Sampler(Node(str(root)))
    facts(sampler, root)
    before = len([*FILES.iterdir()])
    for _ in range(5):
        facts(sampler, root)
    assert len([*FILES.iterdir()]) == before
    for pid in LEFT:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not are_left()


def stat(root: Path, pid: int, state: str, began: int = 100) -> None:
    """A process as /proc shows it."""
    write(root / f"proc/{pid}/stat", f"{pid} (a) b) {state} {'0 ' * 18}{began} {'0 ' * 30}0\n")


def test_a_process_is_told_that_waits_at_two_looks_and_that_it_waits_no_more(root: Path) -> None:
    write(root / "proc/uptime", "5000.00 0.00\n")
    stat(root, 41, "S")
    sampler = processes.Sampler(Node(str(root)))
    reported = []
    for state in "SSDDDSS":
        stat(root, 42, state)
        sampled = facts(sampler, root).get("processes")
        reported.append(None if sampled is None else [process["pid"] for process in sampled["blocked"]])
    assert reported == [[], None, None, [42], [42], [], None]
    stat(root, 42, "D", 200)
    assert facts(sampler, root) == {}
    stat(root, 42, "D", 300)  # another process with the same number
    assert facts(sampler, root) == {}


def test_looking_at_processes_leaves_the_sampler_on_the_processors_that_it_had(root: Path) -> None:
    write(root / "proc/uptime", "5000.00 0.00\n")
    stat(root, 42, "D")
    before, sampler = os.sched_getaffinity(0), processes.Sampler(Node(str(root)))
    for _ in range(3):
        facts(sampler, root)
    assert os.sched_getaffinity(0) == before
