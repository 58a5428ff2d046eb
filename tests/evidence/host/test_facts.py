"""Facts derived from the host's reports: lists of CPUs, shares of time, kernels, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import read
from clusterproof.plugins.evidence.host.facts import ProcessLimits, newest_installed
from clusterproof.plugins.evidence.host.facts_hardware import (
    MAX_CPUS,
    FrequencyPolicy,
    MainMemory,
    Processors,
    cpu_list,
    in_ranges,
)
from tests.builders.probed import host_root, read_under
from tests.builders.samples import Sample, sample

CPU = "sys/devices/system/cpu"
NOT_REPORTED = {"error": "EINVAL", "text": "/proc/meminfo: not there, or no number"}


@given(st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=60))
def test_a_list_of_cpus_reads_as_it_was_written(cpus: frozenset[int]) -> None:
    assert cpu_list(in_ranges(cpus)) == cpus


@pytest.mark.long
@given(st.text(max_size=30) | st.from_regex(r"[0-9,-]{0,30}", fullmatch=True))
def test_any_text_is_a_list_of_few_cpus_or_none(data: str) -> None:
    try:
        cpus = cpu_list(data)
    except TypeError:
        cpus = frozenset()
    assert all(0 <= cpu < MAX_CPUS for cpu in cpus)


@pytest.mark.parametrize("data", ["0-99999999999999999999", "a", "1-", "-1", "²", "0,,1", 5, None, {"error": "EACCES"}])
def test_what_is_no_list_of_cpus_is_incomplete(data: object) -> None:
    with pytest.raises(Incomplete):
        read(data, cpu_list, "online")


@pytest.mark.parametrize(
    ("running", "installed", "waiting"),
    [
        ("6.8.0-1021-aws", ["6.8.0-1021-aws"], ""),
        ("6.8.0-1021-aws", ["6.8.0-1019-aws", "6.8.0-1024-aws", "6.8.0-1021-aws"], "6.8.0-1024-aws"),
        ("6.8.0-1021-aws", ["6.8.0-1100-generic", "6.8.0-1021-aws"], ""),
        ("6.8.0-999-aws", ["6.8.0-1021-aws"], "6.8.0-1021-aws"),
        ("6.1.112-124.190.amzn2023.x86_64", ["6.1.115-126.197.amzn2023.x86_64"], "6.1.115-126.197.amzn2023.x86_64"),
        ("5.14.0-427.8.1.el9_4.x86_64", ["5.14.0-427.el9.x86_64", "5.14.0-427.8.1.el9_4.x86_64"], ""),
        ("5.14.0-427.el9.x86_64", ["5.14.0-427.13.1.el9_4.x86_64"], "5.14.0-427.13.1.el9_4.x86_64"),
        ("5.14.0-427.el9.x86_64", ["5.14.0-503.el9.x86_64+debug"], ""),
        ("5.15.0-1053-nvidia", [], ""),
        ("", ["rescue"], ""),
    ],
)
def test_a_kernel_waits_only_where_it_is_newer_and_of_the_same_flavour(
    running: str, installed: list[str], waiting: str
) -> None:
    assert newest_installed(running, installed) == waiting


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=5))
def test_the_kernel_that_runs_never_waits_for_itself(running: str, installed: list[str]) -> None:
    assert newest_installed(running, [*installed, running]) in ("", *set(installed) - {running})


@pytest.mark.parametrize(
    ("driver", "governor", "is_fast"),
    [
        ("acpi-cpufreq", "performance", True),
        ("acpi-cpufreq", "schedutil", False),
        ("acpi-cpufreq", "powersave", False),
        ("intel_pstate", "powersave", True),
        ("intel_cpufreq", "powersave", False),
        ("amd-pstate-epp", "powersave", True),
        ("amd-pstate", "ondemand", False),
    ],
)
def test_powersave_is_slow_but_for_drivers_that_set_their_own_pace(driver: str, governor: str, is_fast: bool) -> None:
    assert FrequencyPolicy({"driver": driver, "governor": governor}).is_at_full_speed is is_fast


@pytest.mark.parametrize(("cpus", "cores", "threads"), [(192, 96, 2), (191, 96, 2), (96, 96, 1), (144, 0, 0)])
def test_threads_per_core_are_those_of_a_whole_core(cpus: int, cores: int, threads: int) -> None:
    assert Processors({"online": f"0-{cpus - 1}", "info": {"cores": cores}}).threads_per_core == threads


def test_time_is_shared_out_between_two_looks() -> None:
    processors = Processors({"times": [[10, 0, 0, 100, 5, 0, 0, 0, 7], [20, 0, 10, 160, 25, 0, 0, 0, 9]]})
    assert processors.time_percent["iowait"] == 20.0
    assert sum(processors.time_percent.values()) == 100.0


@pytest.mark.parametrize(
    "times",
    [
        [],
        [[0] * 8],
        [[1] * 8, [1] * 8],
        [[5] * 8, [1] * 8],
        [[0] * 4, [1] * 4],
        [["0"] * 8, ["1"] * 8],
        [{"error": "EACCES", "text": ""}, [1] * 8],
        None,
    ],
)
def test_time_that_was_not_sampled_twice_is_incomplete(times: object) -> None:
    with pytest.raises(Incomplete):
        assert Processors({"times": times}).time_percent


@pytest.mark.parametrize(
    ("setting", "mode"),
    [("always [madvise] never", "madvise"), ("[always] madvise never", "always"), ("", ""), ("always", "")],
)
def test_the_mode_of_transparent_huge_pages_is_the_word_in_brackets(setting: str, mode: str) -> None:
    assert MainMemory({"transparent": setting}).transparent_mode == mode


def test_a_limit_that_was_not_reported_is_not_unlimited() -> None:
    limits = ProcessLimits({"memlock": None})
    assert limits.soft("memlock") is None
    with pytest.raises(Incomplete, match="nofile was not reported"):
        limits.soft("nofile")


def test_limits_that_may_not_be_read_are_incomplete() -> None:
    with pytest.raises(Incomplete, match="EACCES"):
        ProcessLimits({"error": "EACCES", "text": "/proc/7/limits: Permission denied"}).soft("stack")


@pytest.mark.long
def test_the_frequency_policy_of_a_real_machine_is_read(tmp_path: Path) -> None:
    capture = sample("host/sysfs-cpu-cpufreq-procfs.txt")
    cpus = read_under(host_root(tmp_path, files_of(capture, f"/{CPU}/cpufreq/")), "cpus")
    assert cpus["policies"] == [
        {
            "driver": "intel_pstate",
            "governor": "powersave",
            "max_khz": 2400000,
            "limit_khz": 2400000,
            "first": "policy0",
            "count": 1,
        }
    ]


def files_of(capture: Sample, folder: str) -> dict[str, str | bytes]:
    """The files of a `grep -H .` capture that are in a folder."""
    files: dict[str, str | bytes] = {}
    for line in capture.lines:
        path, _, text = line.partition(":")
        if path.startswith(folder):
            files[path[1:]] = text + "\n"
    return files


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "key", "data"),
    [
        ("host/jc-linux-proc-meminfo.txt", "total_kib", 3997272),
        ("host/jc-linux-proc-meminfo.txt", "available_kib", 3386876),
        ("host/jc-linux-proc-meminfo.txt", "swap_free_kib", 3996668),
        ("host/meminfo-procfs.txt", "total_kib", 15666184),
        (
            "host/meminfo-procfs.txt",
            "available_kib",
            NOT_REPORTED,
        ),
    ],
)
def test_the_memory_of_real_machines_is_read(file: str, key: str, data: Any, tmp_path: Path) -> None:
    assert read_under(host_root(tmp_path, {"proc/meminfo": sample(file).text}), "memory")[key] == data


@pytest.mark.long
def test_the_processor_of_a_real_machine_is_read(tmp_path: Path) -> None:
    processor = read_under(
        host_root(tmp_path, {"proc/cpuinfo": sample("host/jc-linux-proc-cpuinfo.txt").text}), "cpus"
    )["info"]
    assert (processor["model"], processor["sockets"], processor["cores"]) == (
        "Intel(R) Core(TM) i5-7360U CPU @ 2.30GHz",
        1,
        1,
    )


@pytest.mark.long
def test_the_limits_of_a_real_process_are_read(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "proc/7/comm": "slurmd\n",
        "proc/7/limits": sample("host/limits-procfs.txt").text,
        "proc/7/status": "Name:\tslurmd\nCpus_allowed:\tffff\nCpus_allowed_list:\t0-47,96\nMems_allowed_list:\t0\n",
    }
    limits = read_under(host_root(tmp_path, files), "limits")["daemons"]["slurmd"]
    assert limits == {"memlock": 18446744073708503040, "nofile": 2048, "nproc": 62898, "stack": 8388608, "memory": None,
                    "cpus": "0-47,96"}  # fmt: skip


GIB = 2**30
UNIT = "system.slice/slurmd.service"


@pytest.mark.long
@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        (f"0::/{UNIT}\n", {f"{UNIT}/memory.max": "max", "system.slice/memory.max": "max"}, None),
        (f"0::/{UNIT}\n", {f"{UNIT}/memory.max": f"{64 * GIB}"}, 64 * GIB),
        (f"0::/{UNIT}\n", {f"{UNIT}/memory.max": f"{64 * GIB}", "system.slice/memory.max": f"{8 * GIB}"}, 8 * GIB),
        (
            f"9:cpu,cpuacct:/{UNIT}\n5:memory:/{UNIT}\n0::/{UNIT}\n",
            {
                f"memory/{UNIT}/memory.limit_in_bytes": f"{16 * GIB}",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            16 * GIB,
        ),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_a_daemons_limit_of_memory_is_the_least_of_its_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    tree: dict[str, str | bytes] = {
        "proc/7/comm": "slurmd\n",
        "proc/7/limits": sample("host/limits-procfs.txt").text,
        "proc/7/cgroup": groups,
        **{f"sys/fs/cgroup/{path}": f"{text}\n" for path, text in files.items()},
    }
    assert read_under(host_root(tmp_path, tree), "limits")["daemons"]["slurmd"]["memory"] == limit
