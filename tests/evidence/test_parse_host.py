"""Command output about the host, parsed into the probe's collectors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.aws import parse as ec2
from clusterproof.plugins.evidence.host import parse as host
from clusterproof.plugins.evidence.host import parse_hardware as hardware
from clusterproof.plugins.evidence.host import parse_memory as memory
from clusterproof.plugins.evidence.host import parse_system as system
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.evidence.software import parse as versions
from clusterproof.plugins.evidence.storage import parse as storage
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.faults.captured_fault import evaluated

# Memory, processors, Lustre


def test_free_shows_buffers_and_cache_in_columns_of_their_own() -> None:
    wide: Any = memory.read_free(
        "               total        used        free      shared     buffers       cache   available\n"
        "Mem:        24684096     2076464    19087312       14060      243204     3652416    22607632\n"
        "Swap:              0           0           0\n"
    )
    assert (wide["memory"]["total_kib"], wide["memory"]["available_kib"]) == (24684096, 22607632)


def test_free_and_meminfo_show_the_same() -> None:
    free: Any = memory.read_free(
        "               total        used        free      shared  buff/cache   available\n"
        "Mem:      2113123908    10485760  2000000000        1024      512000  2050000000\n"
        "Swap:              0           0           0\n"
    )
    meminfo: Any = hardware.read_meminfo(
        "MemTotal:       2113123908 kB\nMemAvailable:   2050000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    assert free == meminfo
    assert free["boot"] == {"memory_kib": 2113123908}


def test_free_in_a_unit_that_it_does_not_name_is_an_error() -> None:
    with pytest.raises(CaptureError, match="unit"):
        memory.read_free(
            "               total        used        free      shared  buff/cache   available\n"
            "Mem:         2063597       10241     1953125           1         501     2001953\n"
        )


def test_cpus_that_lscpu_calls_offline_are_a_fault_unless_smt_is_off() -> None:
    capture = sample("lscpu/utillinux-lscpu-x86_64-64cpu-linux6.2.txt").text
    online = re.search(r"^(On-line CPU\(s\) list: +)0-(\d+)$", capture, re.MULTILINE)
    assert online
    last = int(online[2])
    listed = f"{online[1]}0-{last - 1}\nOff-line CPU(s) list: {last}"
    offline = capture.replace(online[0], listed)
    message = f"CPUs {last} are offline; expected all {last + 1} online"
    assert message in evaluated({"lscpu.txt": offline})["host.cpus_online"].message
    power = f"Architecture: ppc64le\n{offline}"  # for example on two of its four threads per core
    assert "offline" not in evaluated({"lscpu.txt": power})["host.cpus_online"].message
    half = offline.replace(listed, f"{online[1]}0-{last // 2}\nOff-line CPU(s) list: {last // 2 + 1}-{last}")
    without_smt = re.sub(r"(Thread\(s\) per core: +)2", r"\g<1>1", half)
    assert "offline" not in evaluated({"lscpu.txt": without_smt})["host.cpus_online"].message


ON_A_TERMINAL = """\
Architecture:            x86_64
  CPU op-mode(s):        32-bit, 64-bit
CPU(s):                  96
  On-line CPU(s) list:   0-47,49-95
  Off-line CPU(s) list:  48
Vendor ID:               GenuineIntel
  Model name:            Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz
    Thread(s) per core:  2
    Core(s) per socket:  24
    Socket(s):           2
NUMA:
  NUMA node(s):          2
  NUMA node0 CPU(s):     0-23,48-71
  NUMA node1 CPU(s):     24-47,72-95
"""


def test_lscpu_is_the_same_as_a_terminal_shows_it() -> None:
    indented: Any = hardware.read_lscpu(ON_A_TERMINAL)
    flat = re.sub(r"^ +", "", ON_A_TERMINAL, flags=re.MULTILINE)
    assert hardware.is_lscpu(ON_A_TERMINAL)
    assert indented == hardware.read_lscpu(flat)
    assert indented["cpus"]["info"]["model"] == "Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz"
    assert [numa_node["node"] for numa_node in indented["memory"]["numa"]] == [0, 1]
    assert "CPUs 48 are offline; expected all 96" in evaluated({"lscpu.txt": ON_A_TERMINAL})["host.cpus_online"].message


def test_fewer_cpus_offline_than_every_second_are_a_fault_without_smt_too() -> None:
    one_thread = ON_A_TERMINAL.replace("Thread(s) per core:  2", "Thread(s) per core:  1")
    assert "CPUs 48 are offline" in evaluated({"lscpu.txt": one_thread})["host.cpus_online"].message


def test_lscpu_shows_what_cpuinfo_does() -> None:
    collected: Any = hardware.read_lscpu(sample("lscpu/hpc6a-48xlarge.txt").text)
    assert collected["cpus"]["info"] == {"model": "AMD EPYC 7R13 Processor", "sockets": 2, "cores": 96}
    assert (collected["cpus"]["machine"], collected["cpus"]["online"], collected["boot"]) == (
        "x86_64",
        "0-95",
        {"cpus": 96},
    )


def test_offline_cpus_are_not_counted() -> None:
    collected: Any = hardware.read_lscpu(sample("lscpu/insights-lscpu-L34.txt").text)
    assert collected["boot"] == {"cpus": 1}
    assert "present" not in collected["cpus"]


def test_cpupower_and_sysfs_show_policies() -> None:
    collected: Any = hardware.read_cpupower(sample("lscpu/insights-cpupower_frequency_info-L36.txt").text)
    first = collected["cpus"]["policies"][0]
    assert (first["driver"], first["governor"], first["max_khz"]) == ("intel_pstate", "performance", 3_000_000)
    folder = "/sys/devices/system/cpu/cpu{}/cpufreq"
    lines = [f"{folder.format(cpu)}/scaling_governor:performance" for cpu in range(4)]
    sysfs: Any = hardware.read_sysfs("\n".join(lines))
    assert sysfs["cpus"]["policies"] == [{"first": "policy0", "governor": "performance", "count": 4}]


def test_lfs_df_lists_every_target() -> None:
    collected: Any = storage.read_lfs_df(sample("lustre/fsx-guide-performance-lfs-df.txt").text)
    assert [target["kind"] for target in collected["lustre_space"]["targets"]] == ["mdt", "ost", "ost"]


def test_lctl_shows_imports_and_health() -> None:
    collected = storage.read_parameters(
        "health_check=healthy\nosc.abcde-OST0000-osc-ffff8e2d.import=\nimport:\n"
        "    name: abcde-OST0000-osc-ffff8e2d\n    target: abcde-OST0000_UUID\n    state: DISCONN\n"
        "osc.abcde-OST0000-osc-ffff8e2d.max_rpcs_in_flight=32\n"
    )
    client = {"kind": "osc", "name": "abcde-OST0000-osc-ffff8e2d", "state": "DISCONN", "max_rpcs_in_flight": 32}
    assert collected == {"lustre": {"health": "healthy", "clients": [client], "left_out": 0}}


def test_lctl_shows_which_imports_are_deactivated() -> None:
    text = "osc.fs-OST0000-osc-ffff8e2d.import=\nimport:\n    state: NEW\n    import_flags: [ invalid, deactive ]\n"
    collected: Any = storage.read_parameters(text)
    assert collected["lustre"]["clients"][0]["state"] == "DEACTIVATED"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("64294", "64294"),
        ("\nusers: 5\nmax_cached_mb: 64294\nused_mb: 0", "users: 5\nmax_cached_mb: 64294\nused_mb: 0"),
    ],
)
def test_lctl_shows_the_caches_of_mounts(value: str, kept: str) -> None:
    text = (
        f"llite.abcde-ffff8e2d.max_cached_mb={value}\nllite.abcde-ffff8e2d.read_ahead_stats=\nhits 9 samples [pages]\n"
    )
    (cache,) = storage.read_parameters(f"{text}llite.abcde-ffff8e2d.checksums=1\n")["lustre"]["caches"]  # type: ignore[index]
    assert cache == {
        "name": "abcde-ffff8e2d",
        "max_cached_mb": kept,
        "read_ahead_stats": "hits 9 samples [pages]",
    }


def test_a_part_of_the_processes_shows_nothing_about_zombies() -> None:
    whole = "  PID STAT COMMAND\n    1 Ss   systemd\n   77 Z    python3 <defunct>\n"
    assert system.read_ps(whole) == {"processes": {"total": 2, "zombies": 1}}
    assert not system.is_ps(whole.replace("    1 Ss   systemd\n", ""))


def test_memory_that_the_kernel_took_out_of_use_is_a_concern() -> None:
    meminfo = re.sub(r"(HardwareCorrupted: +)0", r"\g<1>8", sample("host/meminfo-procfs.txt").text)
    result = evaluated({"meminfo.txt": meminfo})["host.mce_edac"]
    assert "8 kB of memory taken offline because of errors; expected none" in result.message


TRACKING = """\
Reference ID    : A9FEA97B (169.254.169.123)
Stratum         : 4
System time     : {off} seconds slow of NTP time
Root delay      : {delay} seconds
Root dispersion : {dispersion} seconds
Leap status     : {leap}
"""
NEVER = TRACKING.format(off="0.000000000", delay="1.000000000", dispersion="1.000000000", leap="Not synchronised")


@pytest.mark.parametrize(("off", "max_error_s"), [("0.000000000", 0.0003), ("3600.000000000", 3600.0003)])
def test_the_clock_by_chronyc(off: str, max_error_s: float) -> None:
    text = TRACKING.format(off=off, delay="0.000400", dispersion="0.000100", leap="Normal")
    assert system.read_chronyc(text) == {"kernel": {"clock": {"synchronised": True, "max_error_s": max_error_s}}}


@pytest.mark.long
@pytest.mark.parametrize("text", [NEVER, "System clock synchronized: no\n"])
def test_a_clock_that_nobody_corrects_is_a_concern_however_little_is_known_of_its_error(text: str) -> None:
    message = "the clock is not synchronised; expected chrony or another NTP client to correct it"
    expect(evaluated({"clock.txt": text})["host.clock_sync"], Verdict.CONCERN, message)


# What is installed


def components(collected: Any) -> dict[str, Any]:
    return {
        name: component["version"]
        for name, component in collected["versions"]["components"].items()
        if "version" in component
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "hi  libnccl2  2.27.7-1+cuda12.9  amd64  held\nrc  enroot  3.4  amd64  gone\nii  vim  9  amd64  x\n",
            {"nccl": "2.27.7-1+cuda12.9"},
        ),
        ("lustre-client-2.15.6-1.el9.x86_64\nvim-9.0-1.el9.x86_64\n", {"lustre": "2.15.6-1.el9"}),
        (
            "filename:       /lib/modules/6.8.0/updates/dkms/efa.ko.zst\nversion:        2.17.3g\nlicense: GPL\n",
            {"efa": "2.17.3g"},
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\nGCC version: 12\n",
            {"driver": "580.126.09"},
        ),
        ("# EFA installer version: 1.43.2\n# Debug packages installed: no\n", {"efa_installer": "1.43.2"}),
    ],
)
def test_versions_come_from_packages_modules_and_files(text: str, found: dict[str, str]) -> None:
    (form,) = [form for form in versions.FORMS if form.recognises(text)]
    assert components(form.read(text)) == found


def test_a_version_that_nobody_captured_is_unknown_and_not_absent() -> None:
    collected: Any = host.read_uname("Linux gpu001 6.8.0-1021-aws #23~22.04.1-Ubuntu SMP x86_64 GNU/Linux\n")
    assert components(collected) == {"kernel": "6.8.0-1021-aws"}
    assert collected["versions"]["components"]["driver"] == versions.UNKNOWN


def test_the_identity_document_gives_the_type_and_not_the_account() -> None:
    text = '{"accountId": "1", "instanceType": "p5.48xlarge", "availabilityZone": "us-west-2b", "pendingTime": "x"}'
    assert ec2.is_identity(text)
    assert ec2.read_identity(text) == {
        "imds": {"identity": {"instance_type": "p5.48xlarge", "availability_zone": "us-west-2b"}},
        "platform": {"vendor": "Amazon EC2", "product": "p5.48xlarge"},
    }


def test_nvme_list_shows_a_namespace_whose_number_has_hexadecimal_digits() -> None:
    row = "/dev/nvme1n10  /dev/ng1n10  S1  Micron 7450  0xa   3.84  TB /   3.84  TB    512   B +  0 B   E2MU200\n"
    nvme: Any = storage.read_nvme_list(row)
    assert [controller["disks"] for controller in nvme["nvme"]["controllers"]] == [[{"name": "nvme1n10"}]]


def test_nvme_list_shows_disks_and_edac_errors() -> None:
    row = (
        "/dev/nvme1n1     AWS1234     Amazon EC2 NVMe Instance Storage   1   3.84  TB /   3.84  TB    512   B +  0 B\n"
    )
    nvme: Any = storage.read_nvme_list(f"Node SN Model\n---- -- -----\n{row}")
    disk = {"name": "nvme1", "model": "Amazon EC2 NVMe Instance Storage", "serial": "AWS1234"}
    assert nvme["nvme"]["controllers"] == [disk | {"disks": [{"name": "nvme1n1"}]}]
    folder = "/sys/devices/system/edac/mc/mc0"
    edac: Any = hardware.read_edac(f"{folder}/ce_count:3\n{folder}/ue_count:0\n{folder}/mc_name:Skylake\n")
    controller = {"name": "mc0", "modules": [], "corrected": 3, "uncorrected": 0, "type": "Skylake"}
    assert edac["edac"]["controllers"] == [controller]
