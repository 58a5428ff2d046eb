"""The processors: missing, different, slow, asleep, waiting."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed import host
from tests.testbed.host_faults import (
    with_cpus,
    with_frequency_policies,
    with_idle_state,
    with_policy,
    with_time,
)
from tests.testbed.image import File, NodeImage
from tests.testbed.node import healthy_p5, with_file, without_file

DRIVES = "/sys/devices/system/cpu/cpu0/cpuidle"


def p5_with_cpufreq() -> NodeImage:
    """A p5 whose kernel controls the CPUs' frequency."""
    return with_frequency_policies(healthy_p5())


def p5_with_pstate() -> NodeImage:
    """The same, with a driver that chooses the frequency itself."""
    return with_frequency_policies(healthy_p5(), "intel_pstate")


FAULTS = (
    Fault(
        "a CPU with the governor powersave, and not the first one",
        lambda image: with_policy(image, 3, governor="powersave"),
        {"host.cpu_governor": FAIL, "host.cpu_uniform": CONCERN},
        "powersave on 1 (policy3, …), of 4 frequency policies; expected performance on all",
        base=p5_with_cpufreq,
    ),
    Fault(
        "a CPU with the governor powersave under a driver that sets its own pace",
        lambda image: with_policy(image, 3, governor="powersave"),
        {"host.cpu_uniform": CONCERN},
        "governor performance+powersave; expected performance as on 3 of 4 nodes",
        base=p5_with_pstate,
    ),
    Fault(
        "a CPU whose frequency is limited",
        lambda image: with_policy(image, 2, max_freq="1800000"),
        {"host.cpu_governor": CONCERN},
        "policy2 to 1800 of 3500 MHz",
        base=p5_with_cpufreq,
    ),
    Fault(
        "other microcode than the other nodes have",
        lambda image: with_file(image, "/proc/cpuinfo", host.cpuinfo(192, 2, host.EPYC, microcode="0xa001119")),
        {"host.cpu_uniform": CONCERN},
        "microcode 0xa001119; expected 0xa0011d5 as on 3 of 4 nodes",
    ),
    Fault(
        "another processor than the other nodes have",
        lambda image: with_file(image, "/proc/cpuinfo", host.cpuinfo(192, 2, host.XEON)),
        {"host.cpu_uniform": CONCERN},
        f"model {host.XEON}; expected {host.EPYC} as on 3 of 4 nodes",
    ),
    Fault(
        "CPUs that are offline",
        lambda image: with_cpus(image, 160, present=192),
        {"host.cpus_online": FAIL, "host.cpu_uniform": CONCERN},
        "CPUs 160-191 are offline; expected all 192 online",
    ),
    Fault(
        "fewer CPUs than the type has",
        lambda image: with_cpus(image, 128),
        {"host.cpus_online": FAIL, "host.cpu_uniform": CONCERN},
        "128 CPUs; expected 192, as a p5.48xlarge has",
    ),
    Fault(
        "hyper-threading switched off",
        lambda image: with_file(
            with_cpus(image, 96, present=192, threads=1), "/sys/devices/system/cpu/smt/control", "off\n"
        ),
        {"host.thread_siblings": CONCERN, "host.cpu_uniform": CONCERN},
        "1 thread per core (smt is off); expected 2",
    ),
    Fault(
        "CPUs that may fall into C6",
        lambda image: with_idle_state(image, 2, "C6", 133),
        {"host.c_states": CONCERN},
        "enabled: C6 (133 µs to wake)",
    ),
    Fault(
        "a kernel without cpuidle",
        lambda image: without_file(image, DRIVES),
        {"host.c_states": NA},
        "no cpuidle",
    ),
    Fault(
        "CPUs that wait for I/O",
        lambda image: with_time(image, idle=60, iowait=40),
        {"host.iowait": CONCERN},
        "40 % of CPU time waits for I/O; expected at most 20 %",
    ),
    Fault(
        "CPU time that the hypervisor takes",
        lambda image: with_time(image, idle=90, steal=10),
        {"host.cpu_steal": CONCERN},
        "10 % of CPU time is stolen",
    ),
    Fault(
        "a kernel whose count of CPU time stands still",
        lambda image: with_file(image, host.TICKS_PATH, File("#!/bin/sh\n", 0o755)),
        {"host.iowait": INCOMPLETE, "host.cpu_steal": INCOMPLETE},
        "/proc/stat did not move between two looks",
    ),
)
