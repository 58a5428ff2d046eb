"""Processors: their number, model, frequency and load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, reading_of
from clusterproof.plugins.evidence.group import compared, describe, differences
from clusterproof.plugins.evidence.host.facts_hardware import FrequencyPolicy, Processors, in_ranges
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]

SMT_OFF = ("off", "forceoff")
MHZ = 1000  # kHz
WITHOUT_BOOST = "acpi-cpufreq"  # whose limit is the base frequency, since Linux 5.11 below what it says of the CPU
ARM = ("aarch64", "arm64")
ONE_THREAD = re.compile(r"(?:[cmr][78]a|hpc\d\w*|t2)\..+")  # types of one thread per core: EC2 user guide, CPU options


@mark.ami
@mark.hyperpod_performance_debugger("A")
@evidence(
    "cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor | sort | uniq -c; "
    "grep . /sys/devices/system/cpu/cpufreq/policy*/{scaling,cpuinfo}_max_freq"
)
def test_cpu_governor(node: Node) -> None:
    """CPU frequency governor.

    Kernel launches and data feeding run on single CPUs: at a low frequency the GPUs wait. Drivers that choose the
    frequency themselves (intel_pstate, amd-pstate-epp) may show powersave and still be fast. The limit of acpi-cpufreq
    leaves out boost: unless it is too low for a base frequency, it is compared with that of the node's other CPUs, and
    by host.cpu_uniform with the group's.

    Remedy (fix configuration): Set the governor to performance on every CPU (cpupower frequency-set -g performance),
    and at every boot.
    """
    policies = node.processors.policies
    if not policies:
        not_applicable("no cpufreq: the hypervisor or the firmware sets the frequency, not the kernel")
    slow = ", ".join(filter(None, each(policies, _slow)))
    total = sum(policy.count for policy in policies)
    fail_if(slow, f"{slow}, of {total} frequency policies; expected performance on all")
    is_intel = "Intel" in reading_of(node.processors, "info.model", "")
    percent = node.threshold("cpu.intel_base_percent") if is_intel else node.threshold("cpu.base_percent")
    capped = ", ".join(filter(None, each(policies, lambda policy: _capped(policy, policies, percent / 100))))
    concern_if(capped, f"limited: {capped}; expected no limit below what the CPU can do")


def _slow(policy: FrequencyPolicy) -> str:
    return "" if policy.is_at_full_speed else f"{policy.governor} on {policy.count} ({policy.first}, …)"


def _capped(policy: FrequencyPolicy, policies: Sequence[FrequencyPolicy], least_base: float) -> str:
    limit, most, base = policy.limit_khz, policy.max_khz, _highest_limit(policies)
    if reading_of(policy, "driver") == WITHOUT_BOOST and base >= least_base * most:
        most = min(most, base)
    return f"{policy.first} to {limit // MHZ} of {most // MHZ} MHz" if limit < most else ""


def _highest_limit(policies: Iterable[FrequencyPolicy]) -> int:
    """The highest known limit in kHz; 0 if none is known."""
    return max((reading_of(policy, "limit_khz", 0) for policy in policies), default=0)


@mark.hyperpod_version_checker
@evidence("lscpu")
def test_cpu_uniform(node: Node) -> None:
    """Processors compared with the group.

    A job is as fast as its slowest node.

    Remedy (investigate): Compare lscpu with a neighbouring node: settings come from the image or the boot, model and
    microcode from the host.
    """
    deviations = differences(node, "processors", lambda other: compared(other.processors, OF_PROCESSORS))
    maximum = [deviation.own for deviation in deviations if deviation.name == MAXIMUM]
    once = [deviation for deviation in deviations if deviation.name != LIMIT or deviation.own not in maximum]
    concern_if(once, describe(once))


MAXIMUM, LIMIT = "maximum MHz", "limit in MHz"
OF_PROCESSORS: Mapping[str, Callable[[Processors], str | None]] = {
    "model": lambda cpus: cpus.info.model or None,
    "microcode": lambda cpus: "+".join(cpus.info.microcode) or None,
    "CPUs": lambda cpus: str(len(cpus.online)),
    "sockets": lambda cpus: str(cpus.info.sockets or "") or None,
    "threads per core": lambda cpus: str(cpus.threads_per_core or "") or None,
    "governor": lambda cpus: "+".join(sorted({policy.governor for policy in cpus.policies})) or "none",
    MAXIMUM: lambda cpus: "+".join(sorted({str(policy.max_khz // MHZ) for policy in cpus.policies})) or "none",
    LIMIT: lambda cpus: str(_highest_limit(cpus.policies) // MHZ or "") or None,
}


@mark.ami
@mark.hyperpod_node_debugger("I")
@evidence("cat /sys/devices/system/cpu/online /sys/devices/system/cpu/present; nproc")
def test_cpus_online(node: Node) -> None:
    """CPU count.

    Remedy (fix configuration): Bring the CPUs online (chcpu -e LIST), or look for maxcpus and nr_cpus in /proc/cmdline.
    If the machine itself has fewer than its type, replace the node.
    """
    cpus = node.processors
    with part:
        offline = cpus.present - cpus.online
        smt = known(lambda: cpus.smt, None) if offline else ""
        seen = f"CPUs {in_ranges(offline)} are offline; expected all {len(cpus.present)} online"
        concern_if(offline and smt is None, seen)
        fail_if(offline and smt not in (None, *SMT_OFF), seen)  # which takes every second one offline
    online = len(cpus.online)
    if node.is_outside_ec2:
        not_applicable(f"all {online} CPUs are online; only an EC2 type says how many there should be")
    vcpus = node.of_type("vcpus")
    is_single = cpus.threads_per_core == 1 and cpus.machine not in ARM
    due = vcpus // int(node.threshold("cpu.threads_per_core")) if is_single else vcpus
    assert online >= due, f"{online} CPUs; expected {due}, as a {node.instance_type} has"


@mark.ami
@mark.hyperpod_node_debugger("J")
@evidence("lscpu | grep Thread; cat /sys/devices/system/cpu/smt/control")
def test_thread_siblings(node: Node) -> None:
    """Hyper-threading.

    EC2's x86 instance types have two threads per core unless ThreadsPerCore, the CPU options or the kernel change that;
    M7a, C7a, R7a and their successors, T2 and the HPC types always have one. Where there should be two, one leaves data
    loaders half the CPUs, and Slurm drains the node if slurm.conf counts all of them.

    Remedy (fix configuration): If that is not intended, set ThreadsPerCore=2 for the instance group, or remove nosmt
    from the kernel command line.
    """
    cpus = node.processors
    if cpus.machine in ARM or node.is_outside_ec2 or not (node.type_name and cpus.threads_per_core):
        not_applicable("only EC2's x86 instance types are known to have two threads per core")
    if ONE_THREAD.fullmatch(node.type_name):
        not_applicable(f"{node.type_name} always has one thread per core")
    due = int(node.threshold("cpu.threads_per_core"))
    if cpus.threads_per_core != due:
        smt = known(lambda: cpus.smt, "")
        detail = f" (smt is {smt})" if smt else ""
        concern(f"{cpus.threads_per_core} thread per core{detail}; expected {due}")


@mark.ami
@mark.hyperpod_performance_debugger("A")
@evidence("cpupower idle-info; grep . /sys/devices/system/cpu/cpu0/cpuidle/state*/{name,latency,disable}")
def test_c_states(node: Node) -> None:
    """CPU sleep states.

    A CPU that waits for the network or a GPU goes to sleep. Waking from C6 takes a hundred microseconds and more.

    Remedy (fix configuration): Boot with intel_idle.max_cstate=1 processor.max_cstate=1, or disable the states at boot
    (cpupower idle-set -D 10).
    """
    kinds = [*each(node.pci_devices, lambda device: device.is_nvidia_gpu)]
    if not any(kinds):
        not_applicable("no GPU on this node waits for its CPUs")
    states = node.processors.idle_states
    if not states:
        not_applicable("no cpuidle: the kernel has no idle states to choose from")
    limit_us = node.threshold("cpu.wake_concern_us")
    enabled = each(states, lambda state: (state.name, 0.0 if state.disabled else state.latency_us))
    deep = ", ".join(f"{name} ({wake_us} µs to wake)" for name, wake_us in enabled if wake_us > limit_us)
    concern_if(deep, f"enabled: {deep}; expected no idle state of more than {limit_us:.0f} µs")


@mark.hyperpod_performance_debugger("B")
@evidence("vmstat 1 3; iostat -x 1 2")
def test_iowait(node: Node) -> None:
    """CPU I/O wait.

    Remedy (investigate): Find which process reads or writes (iotop, pidstat -d 1) and which mount is slow.
    """
    waiting, limit = node.processors.time_percent["iowait"], node.threshold("cpu.iowait_concern_percent")
    if waiting > limit:
        seen, most = format_pair(waiting, limit)
        concern(f"{seen} % of CPU time waits for I/O; expected at most {most} %")


@mark.hyperpod_performance_debugger("A")
@evidence("vmstat 1 3")
def test_cpu_steal(node: Node) -> None:
    """CPU steal.

    Remedy (replace): Replace the node: GPU instances do not share their CPUs.
    """
    stolen, limit = node.processors.time_percent["steal"], node.threshold("cpu.steal_concern_percent")
    if stolen > limit:
        seen, most = format_pair(stolen, limit)
        concern(f"{seen} % of CPU time is stolen; expected at most {most} %")
