"""Checks of a host's memory, processes, processors and settings on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.checks.host.given import evaluated

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
GIB = 2**20  # in KiB


def mounts(at: str, **values: Any) -> dict[str, Any]:
    sizes = {"total_kib": 100 * GIB, "free_kib": 90 * GIB, "inodes": 100, "inodes_free": 90}
    mount = {"path": at, "type": "tmpfs", "source": "tmpfs", "options": "rw", "alive": "yes", **sizes, **values}
    return {"mounts": [mount], "fstab": []}


@pytest.mark.parametrize(
    ("data", "verdict", "message"),
    [
        ({}, PASS, ""),
        ({"type": "ext4"}, FAIL, "/dev/shm is ext4; expected tmpfs"),
        ({"total_kib": None, "alive": "hung"}, INCOMPLETE, "/dev/shm does not report its size (hung)"),
        ({"free_kib": None, "alive": "hung"}, INCOMPLETE, "/dev/shm does not report its size (hung)"),
        ({"total_kib": GIB, "free_kib": GIB}, FAIL, "/dev/shm has 1 GiB; expected at least 16 GiB"),
        ({"free_kib": GIB}, CONCERN, "/dev/shm is 99 % full; expected at most"),
    ],
)
def test_dev_shm_is_a_tmpfs_with_room(data: dict[str, Any], verdict: Verdict, message: str) -> None:
    expect(evaluated("dev_shm", mounts=mounts("/dev/shm", **data)), verdict, message)


@pytest.mark.parametrize(
    ("data", "verdict", "message"),
    [
        ({}, PASS, ""),
        ({"path": "/other"}, INCOMPLETE, "the root volume does not report its size"),
        ({"total_kib": None}, INCOMPLETE, "the root volume does not report its size"),
        ({"free_kib": None}, INCOMPLETE, "the root volume does not report its size"),
        ({"total_kib": 0}, INCOMPLETE, "the root volume does not report its size"),
        ({"inodes_free": 0}, FAIL, "/ has 100.0 % of its 100 inodes in use; expected less than 98 %"),
        ({"inodes": 100_000, "inodes_free": 100}, FAIL, "/ has 99.9 % of its 100000 inodes in use; expected less"),
        ({"inodes_free": 5}, Verdict.CONCERN, "/ has 95.0 % of its 100 inodes in use; expected less than 90 %"),
        ({"inodes": 0, "inodes_free": 0}, PASS, ""),  # it creates them as needed
        ({"total_kib": None, "inodes_free": 0}, FAIL, "/ has 100.0 % of its 100 inodes in use"),
        ({"total_kib": "?", "inodes_free": 0}, FAIL, "/ has 100.0 % of its 100 inodes in use"),
        ({"inodes": "?", "free_kib": 5 * GIB}, FAIL, "/ is 95 % full; expected less than 90 %"),
        ({"free_kib": 5 * GIB}, FAIL, "/ is 95 % full; expected less than 90 %"),
        ({"free_kib": 15 * GIB}, CONCERN, "/ is 85 % full; expected less than 80 %"),
        ({"type": "squashfs", "free_kib": 0, "inodes_free": 0}, NA, "/ is an image (squashfs)"),  # Talos
        (
            {"type": "erofs", "free_kib": 0},
            NA,
            "/ is an image (erofs), to which nothing can be written",
        ),  # Bottlerocket
        ({"type": "overlay", "source": "composefs", "free_kib": 0}, NA, "/ is an image (composefs)"),  # Fedora CoreOS
        ({"type": "overlay", "free_kib": 5 * GIB}, FAIL, "/ is 95 % full; expected less than 90 %"),
        ({"type": "?" * 3, "source": 0, "free_kib": 5 * GIB}, FAIL, "/ is 95 % full; expected less than 90 %"),
    ],
)
def test_the_root_volume_has_room(data: dict[str, Any], verdict: Verdict, message: str) -> None:
    expect(evaluated("root_volume", mounts=mounts("/", **data)), verdict, message)


def total(gib: float) -> dict[str, Any]:
    return {"memory": {"total_kib": int(gib * GIB)}}


@pytest.mark.parametrize(
    ("own", "others", "verdict", "message"),
    [
        (total(2000), [total(2000)] * 2, PASS, ""),
        (total(1900), [total(2000)] * 3, CONCERN, "1900 GiB; expected 2000 GiB, as on 3 of 4 nodes"),
        (total(1900), [total(2000)], CONCERN, "1900 GiB; expected 2000 GiB, as on 1 of 2 nodes"),
        (total(2000), [total(1900)], PASS, ""),
        (total(23.5), [total(23.5)], PASS, ""),  # 24 in whole GiB
        (total(3.4), [total(3.4)] * 3, PASS, ""),
        (total(2000), [], NA, "1 of its group reported it; 2 are needed to compare"),
        (total(2000), [{}, {}], NA, "1 of its group reported it; 2 are needed to compare"),
    ],
)
def test_a_node_has_the_memory_of_its_group(own: Any, others: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("memory_uniform", *others, **own), verdict, message)


@pytest.mark.parametrize(
    ("daemons", "verdict", "message"),
    [
        ({"slurmd": {"memory": None}}, PASS, ""),
        ({"slurmd": {"memory": 1900 * 2**30}}, PASS, ""),
        ({"slurmd": {"memory": 2**30}}, CONCERN, "slurmd may use 1 GiB of 2000 GiB; expected at least"),
        ({}, NA, "neither slurmd nor containerd runs here"),
        ({"slurmd": {}}, INCOMPLETE, "the limit memory was not reported"),
    ],
)
def test_a_daemon_may_use_the_memory(daemons: Any, verdict: Verdict, message: str) -> None:
    expect(
        evaluated("daemon_memory", limits={"login": {"memlock": None}, "daemons": daemons}, **total(2000)),
        verdict,
        message,
    )


PLENTY = {"memlock": None, "nofile": 1048576, "nproc": None, "stack": 8388608}


@pytest.mark.parametrize(
    ("login", "verdict", "message"),
    [
        (PLENTY, PASS, ""),
        ({**PLENTY, "stack": 65536}, FAIL, "stack is 64 KiB for a login; expected at least"),
        ({**PLENTY, "nofile": 1024}, CONCERN, "nofile 1024 for a login; expected at least nofile 65536"),
        ({**PLENTY, "nproc": 100}, CONCERN, "nproc 100 for a login; expected at least nproc"),
        ({"stack": 8388608}, INCOMPLETE, "the limit nofile was not reported"),
    ],
)
def test_jobs_inherit_limits_that_suffice(login: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("ulimits", limits={"login": login, "daemons": {}}), verdict, message)


def blocked(wait: str = "", stack: Any = None, blocked_s: float | None = 1000.0, age_s: float = 2000.0) -> Any:
    return {"pid": 7, "name": "x", "wait": wait, "stack": stack, "blocked_s": blocked_s, "age_s": age_s}


@pytest.mark.parametrize(
    ("process", "verdict", "message"),
    [
        (blocked("nv_wait", ["os_acquire_mutex [nvidia]"]), FAIL, "in state D: x (pid 7, 1000 s in nv_wait)"),
        (blocked("nobody_knows"), CONCERN, "outside any known driver or file system: x (pid 7, 1000 s in nobody_kn"),
        (blocked(), CONCERN, "x (pid 7, 1000 s in the kernel)"),
        (blocked("nobody_knows", blocked_s=1.0), PASS, ""),
        (blocked("nobody_knows", blocked_s=None), CONCERN, "the kernel does not say for how long: x (pid 7)"),
        (blocked("nobody_knows", blocked_s=None, age_s=1.0), PASS, ""),
        (blocked("nobody_knows", blocked_s=1.0, age_s=9999.0), PASS, ""),
    ],
)
def test_a_process_that_hangs_is_named_with_what_it_waits_for(process: Any, verdict: Verdict, message: str) -> None:
    log = {"lines": [], "truncated": False}
    result = evaluated("d_state", processes={"blocked": [process], "zombies": 0}, kernel_log=log)
    expect(result, verdict, message)


@pytest.mark.parametrize("wait", ["nv_wait", "nobody_knows"])
def test_how_many_more_hang_like_those_that_are_named_is_said(wait: str) -> None:
    processes = {"blocked": [blocked(wait)], "blocked_alike": 5, "zombies": 0}
    result = evaluated("d_state", processes=processes, kernel_log={"lines": [], "truncated": False})
    assert f"x (pid 7, 1000 s in {wait}), and 5 more like these; expected none" in result.message


def numa(*gib: int, balancing: str = "1", transparent: str = "always [madvise] never") -> dict[str, Any]:
    sockets = [{"node": at, "memory_kib": size * GIB, "cpus": str(at)} for at, size in enumerate(gib)]
    return {"numa": sockets, "numa_balancing": balancing, "transparent": transparent}


def three_of_which_one_is_unread() -> dict[str, Any]:
    memory = numa(1000, 1000, 700)
    memory["numa"][1]["memory_kib"] = {"error": "EIO", "text": ""}
    return memory


GPU = {"class": "030200", "vendor": "10de", "device": "2330", "address": "0000:53:00.0", "numa": 0}


@pytest.mark.parametrize(
    ("memory", "devices", "verdict", "message"),
    [
        (numa(1000, 1000), [GPU], PASS, ""),
        (numa(1000), [GPU], NA, "all CPUs are in one NUMA node"),
        (numa(1000, 1000), [{**GPU, "address": None, "numa": -1}], INCOMPLETE, "concern: a device has no NUMA node"),
        (three_of_which_one_is_unread(), [GPU], INCOMPLETE, "concern: node 2 has 700 GiB; expected 1000 GiB like"),
        (numa(1000, 700), [GPU], CONCERN, "node 1 has 700 GiB; expected 1000 GiB like the largest node, within"),
        (numa(1000, 1000), [{**GPU, "numa": -1}], CONCERN, "0000:53:00.0 has no NUMA node; expected one"),
        (numa(1000, 1000), [{**GPU, "numa": -1, "class": "010802", "vendor": "1d0f"}], PASS, ""),  # a disk
    ],
)
def test_memory_and_devices_are_spread_over_numa_nodes(
    memory: Any, devices: Any, verdict: Verdict, message: str
) -> None:
    expect(evaluated("numa", memory=memory, pci={"devices": devices}), verdict, message)


def test_what_a_kernel_does_not_have_is_not_applicable() -> None:
    expect(evaluated("numa_balancing", memory=numa(1000)), NA, "all CPUs are in one NUMA node")
    others = [{"memory": numa(1000, 1000)}] * 3
    expect(
        evaluated("numa_balancing", *others, memory=numa(1, 1, balancing="")), NA, "this kernel has no NUMA balancing"
    )
    without = numa(1000, 1000, transparent="")
    expect(evaluated("thp", *others, memory=without), NA, "this kernel has no transparent huge pages")
    kernel = {"running": "6.8.0", "images": [], "modules": [], "clocksource": "", "clocksources": []}
    expect(
        evaluated("kernel_running_is_installed", kernel=kernel), NA, "no kernel is installed here, as in a container"
    )
    expect(evaluated("clocksource", kernel=kernel), NA, "the kernel does not name its clock source")


@pytest.mark.parametrize(
    ("unread", "left", "occasion", "verdict", "message"),
    [
        (0, [], "preflight", PASS, ""),
        (3, [], "preflight", INCOMPLETE, "processes of other users may not be read; run as root, or with --sudo"),
    ],
)
def test_processes_that_may_not_be_looked_into_are_no_pass(
    unread: int, left: Any, occasion: str, verdict: Verdict, message: str
) -> None:
    jobs = {"left": left, "left_out": 0, "unread": unread}
    expect(evaluated("job_leftovers", jobs=jobs, boot={"uid": 1000}, occasion=occasion), verdict, message)


OWNED = {"uid": 1000, "count": 3, "oldest_s": 600.0}


@pytest.mark.parametrize(
    ("shm", "occasion", "verdict", "message"),
    [
        ([], "prolog", PASS, ""),
        ([{**OWNED, "kib": GIB}], "prolog", CONCERN, "1 GiB, 0.1 % of the memory"),
        ([{**OWNED, "kib": GIB}], "preflight", CONCERN, "3 files of user 1000, the oldest 10 minutes old"),
        ([{**OWNED, "kib": 400 * GIB}], "prolog", FAIL, "400 GiB, 20.0 % of the memory"),
        ([{**OWNED, "kib": 400 * GIB}], "epilog", FAIL, "400 GiB, 20.0 % of the memory"),
        ([{**OWNED, "kib": 400 * GIB}], "preflight", CONCERN, "400 GiB, 20.0 % of the memory"),
        ([{**OWNED, "kib": 512}], "prolog", CONCERN, "0.5 MiB, 0.0 % of the memory"),
        ([{**OWNED, "kib": GIB, "oldest_s": None}], "prolog", INCOMPLETE, "concern: 1 GiB, 0.1 % of the memory"),
        ([{**OWNED, "kib": 400 * GIB}, {**OWNED, "count": None, "kib": None}], "prolog", FAIL, "400 GiB, 20.0 %"),
    ],
)
def test_files_of_users_who_have_gone_fail_around_a_job_where_they_are_many(
    shm: Any, occasion: str, verdict: Verdict, message: str
) -> None:
    expect(evaluated("shm_leaked", jobs={"shm": shm}, occasion=occasion), verdict, message)


DISK = {"address": "0000:01:00.0", "vendor": "1d0f", "device": "8061", "class": "010802", "driver": "nvme"}


@pytest.mark.parametrize(
    ("changed", "verdict", "message"),
    [
        ({}, PASS, ""),
        ({"driver": ""}, FAIL, ""),
        ({"driver": "", "function_of": "0000:00:00.0"}, PASS, ""),
        ({"class": "060400", "driver": ""}, NA, "neither a GPU nor a network adapter nor an NVMe controller"),
    ],
)
def test_a_device_has_a_driver(changed: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("device_drivers", pci={"devices": [{"function_of": "", **DISK, **changed}]}), verdict, message)
