"""Reports of the processor, memory and kernel collectors, also with odd or missing files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.running import Running
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evidence.host import collect_jobs as jobs
from clusterproof.plugins.evidence.host import collect_platform
from tests.builders import recordings as recorded
from tests.builders.evaluated import among, results
from tests.builders.probed import host_root, read_under, value
from tests.testbed.host_faults import with_clock, with_frequency_policies, with_policy
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_cpu, healthy_p5

pytestmark = pytest.mark.long


def test_a_limit_that_the_kernel_does_not_name_is_an_error_in_its_place(tmp_path: Path) -> None:
    folder = host_root(tmp_path, {"proc/7/comm": "slurmd\n", "proc/7/limits": "Max open files   many   1024   files\n"})
    daemons = read_under(folder, "limits")["daemons"]
    assert daemons["slurmd"]["nofile"] == {"error": "EINVAL", "text": "/proc/7/limits: no soft limit of max open files"}


class Hung(BaseException):
    """A file that never answers."""


def jobs_before(root: Path, hangs: str, monkeypatch: pytest.MonkeyPatch) -> NodeEvidence:
    """What is known of jobs if that file hangs: of 41, which runs here, and of 42, which does not."""
    group = "0::/system.slice/slurmstepd.scope/job_{}/step_0\n"
    files = {"proc/5/comm": "slurmstepd\n", "proc/5/cmdline": "slurmstepd: [41.0]"}
    files |= {f"proc/{pid}/comm": "python\n" for pid in (7, 8, 9)}
    files |= {f"proc/{pid}/cgroup": group.format(job) for pid, job in ((7, 41), (8, 42), (9, 42))}
    folder = host_root(root, files)
    for pid in (7, 8, 9):
        os.chown(folder / f"proc/{pid}", 1000, 1000)
    return recorded.node("gpu001", boot=recorded.boot(), jobs=sent_before(hangs, folder, jobs.read, monkeypatch))


def sent_before(
    hangs: str, folder: Path, collect: Callable[[Node], object], monkeypatch: pytest.MonkeyPatch
) -> Collected:
    """What a collector has sent when that file hangs."""
    node, kept, read = Node(str(folder)), Running.__new__(Running), Node.read
    kept._so_far = {}

    def read_or_hang(node: Node, path: str) -> str:
        if path == hangs:
            raise Hung
        return read(node, path)

    monkeypatch.setattr(Node, "read", read_or_hang)
    monkeypatch.setattr(node, "so_far", kept._keep)
    with pytest.raises(Hung):
        collect(node)
    return Collected(Status.TIMED_OUT, kept._so_far, "it hangs")


@needs_nodes
def test_a_bmc_that_does_not_answer_hides_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bmc = "sys/devices/platform/ipmi_bmc.0/firmware_revision"  # the kernel asks the BMC for it, and waits
    folder = host_root(tmp_path, {"sys/class/dmi/id/sys_vendor": "NVIDIA\n", bmc: "6.10\n"})
    platform = sent_before(f"/{bmc}", folder, collect_platform.read, monkeypatch)
    read = among(recorded.node("gpu001", platform=platform)).platform
    assert read.vendor == "NVIDIA"
    with pytest.raises(Incomplete, match="it hangs"):
        read.bmc  # noqa: B018


@needs_nodes
@pytest.mark.parametrize(
    ("hangs", "left"),
    [
        ("/proc/5/cmdline", ["left was not read (it hangs)"]),
        ("/proc/7/cgroup", ["the job of each process was not read (it hangs)"]),
        ("/proc/9/cgroup", ["the job of each process was not read (it hangs)", "python (pid 8) in the control group"]),
    ],
)
def test_a_process_that_hangs_hides_nothing_of_those_before_it(
    hangs: str, left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_check = results(jobs_before(tmp_path, hangs, monkeypatch))
    findings = by_check["host.job_leftovers"].findings
    assert [text in finding.message for text, finding in zip(left, findings, strict=True)] == [True] * len(left)
    assert by_check["host.shm_leaked"].verdict is Verdict.PASS


@needs_nodes
def test_processors_are_reported_with_their_number_kind_and_times() -> None:
    cpus = value(healthy_p5(), "cpus")
    assert (cpus["online"], cpus["present"], cpus["smt"]) == ("0-191", "0-191", "on")
    assert cpus["info"] == {
        "model": "AMD EPYC 7R13 Processor",
        "microcode": ["0xa0011d5"],
        "sockets": 2,
        "cores": 96,
    }
    assert cpus["policies"] == []
    assert [state["name"] for state in cpus["idle_states"]] == ["POLL", "C1"]
    first, second = cpus["times"]
    assert len(first) == len(second) == 8
    assert all(then < now for then, now in zip(first, second, strict=True) if now)


@needs_nodes
def test_frequency_policies_that_are_alike_are_reported_once() -> None:
    image = with_policy(with_frequency_policies(healthy_p5()), 2, governor="powersave")
    alike = {"driver": "acpi-cpufreq", "max_khz": 3500000, "limit_khz": 3500000}
    assert value(image, "cpus")["policies"] == [
        {**alike, "governor": "performance", "first": "policy0", "count": 3},
        {**alike, "governor": "powersave", "first": "policy2", "count": 1},
    ]


def test_processors_of_arm_are_named_by_their_numbers(tmp_path: Path) -> None:
    block = "processor\t: {}\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"
    folder = host_root(tmp_path, {"proc/cpuinfo": "".join(block.format(cpu) for cpu in range(144))})
    info = read_under(folder, "cpus")["info"]
    assert info == {"model": "0x41 0xd4f", "microcode": [], "sockets": 0, "cores": 0}


@pytest.mark.parametrize(
    ("files", "key", "data"),
    [
        ({}, "info", "ENOENT"),
        ({}, "online", "ENOENT"),
        ({"proc/stat": "cpu a lot of time\n"}, "times", "EINVAL"),
        ({"proc/stat": b"\xff\xfe\n"}, "times", []),
        ({"proc/cpuinfo": b"\xff" * 5000}, "info", {"model": "", "microcode": [], "sockets": 0, "cores": 0}),
    ],
)
def test_what_the_processors_do_not_report_is_an_error_in_its_place(
    tmp_path: Path, files: dict[str, str | bytes], key: str, data: object
) -> None:
    seen = read_under(host_root(tmp_path, files), "cpus")[key]
    seen = seen[0] if key == "times" else seen
    assert (seen["error"] if isinstance(data, str) else seen) == data


def test_many_kinds_of_frequency_policies_are_reported_up_to_a_bound(tmp_path: Path) -> None:
    files = {f"sys/devices/system/cpu/cpufreq/policy{n}/scaling_max_freq": str(n) for n in range(100)}
    assert len(read_under(host_root(tmp_path, files), "cpus")["policies"]) == 16


def test_what_zfs_counts_of_its_cache_is_reported(tmp_path: Path) -> None:
    files = {"proc/meminfo": "MemTotal: 100 kB\n", "proc/spl/kstat/zfs/arcstats": "size    4    1024\n"}
    assert read_under(host_root(tmp_path, files), "memory")["arcstats"] == "size    4    1024"


@needs_nodes
def test_memory_is_reported_with_its_huge_pages_and_numa_nodes() -> None:
    memory = value(healthy_p5(), "memory")
    assert (memory["total_kib"], memory["swap_total_kib"]) == (2113123909, 0)
    assert {"size_kib": 2048, "pages": 5128, "free": 5128} in memory["huge_pages"]
    assert [(node["node"], node["cpus"]) for node in memory["numa"]] == [(0, "0-47,96-143"), (1, "48-95,144-191")]
    assert memory["nccl_shm"] == {"count": 0, "kib": 0, "oldest_s": 0.0, "left_out": 0}


def test_memory_that_is_not_reported_is_an_error_in_its_place(tmp_path: Path) -> None:
    memory = read_under(host_root(tmp_path, {"proc/meminfo": "MemTotal: much kB\nSwapTotal: 0 kB\n"}), "memory")
    assert memory["total_kib"]["error"] == memory["available_kib"]["error"] == "EINVAL"
    assert (memory["swap_total_kib"], memory["corrupted_kib"]) == (0, None)
    assert (memory["transparent"], memory["numa_balancing"], memory["numa"], memory["huge_pages"]) == ("", "", [], [])


def test_only_nccls_segments_are_counted(tmp_path: Path) -> None:
    folder = host_root(
        tmp_path, {"dev/shm/nccl-a1B2c3": "x" * 8192, "dev/shm/sem.other": "x", "dev/shm/nccl-d4E5f6": "x"}
    )
    os.utime(folder / "dev/shm/nccl-a1B2c3", (0, time.time() - 7200))
    left = read_under(folder, "memory")["nccl_shm"]
    assert left["count"] == 2
    assert left["kib"] > 0
    assert 7200 <= left["oldest_s"] < 7260


def test_a_kernel_that_was_removed_is_not_installed(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "lib/modules/6.8.0-1021-aws/modules.order": "",
        "lib/modules/6.8.0-1019-aws/modules.dep": "",
        "boot/vmlinuz-6.8.0-1021-aws": "",
        "boot/initrd.img-6.8.0-1019-aws": "",
        "run/reboot-required": "",
        "run/reboot-required.pkgs": b"libc6\n\xff\n" + b"libssl3\n" * 40,
    }
    kernel = read_under(host_root(tmp_path, files), "kernel")
    assert (kernel["modules"], kernel["images"]) == (["6.8.0-1021-aws"], ["6.8.0-1021-aws"])
    assert (kernel["reboot_required"], kernel["reboot_packages"]) == (True, ["libc6", "libssl3", "\ufffd"])
    assert kernel["leaves_marker"] is False


def test_a_container_has_no_kernel_installed(tmp_path: Path) -> None:
    kernel = read_under(host_root(tmp_path, {}), "kernel")
    assert (kernel["modules"], kernel["images"], kernel["clocksource"]) == ([], [], "")


@needs_nodes
def test_the_clock_is_reported_with_how_far_it_may_be_off() -> None:
    image = with_clock(healthy_cpu(), 16.0, is_synchronised=False)
    assert value(image, "kernel")["clock"] == {"max_error_s": 16.0, "synchronised": False}
