"""Settings and limits of the kernel and of the system, and the kernel's own problems."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault, p5
from tests.testbed.host_faults import with_pids
from tests.testbed.image import Folder, NodeImage
from tests.testbed.needs import needs_two_cpus
from tests.testbed.node import with_file

SYS = "/proc/sys"
SPEED = "/sys/class/net/ens32/speed"
ON_ONE_CPU = 'taskset -cp 0 "$(cat /run/slurmd.pid)" >/dev/null && echo ready && exec sleep 60'

PRELOADING = "ls /lib/*/libm.so.6 /lib64/libm.so.6 2>&- | head -n 1 >>/etc/ld.so.preload; echo ready; exec sleep 60"


def of_100_gbit() -> NodeImage:
    """A node whose interface reports its speed."""
    return with_file(p5(), SPEED, "100000\n")


def setting(name: str, path: str, text: str, message: str) -> Fault:
    """A setting that differs from other nodes'."""
    return Fault(name, lambda image: with_file(image, path, text), {"host.kernel_settings": CONCERN}, message)


FILES, KERNEL = "/proc/sys/fs/file-nr", "/proc/sys/kernel"
PIDS = "/sys/fs/cgroup/system.slice/slurmd.service/pids.current"


FAULTS = (
    setting(
        "a kernel that never overcommits",
        f"{SYS}/vm/overcommit_memory",
        "2\n",
        "vm.overcommit_memory 2; expected 0 or 1",
    ),
    setting(
        "a kernel that overcommits always, unlike on the other nodes",
        f"{SYS}/vm/overcommit_memory",
        "1\n",
        "vm.overcommit_memory 1; expected 0 as on 3 of 4 nodes",
    ),
    setting(
        "a short queue of connections",
        f"{SYS}/net/core/somaxconn",
        "16\n",
        "net.core.somaxconn 16; expected at least 128",
    ),
    setting(
        "hardly any ports for connections",
        f"{SYS}/net/ipv4/ip_local_port_range",
        "32768\t32797\n",
        "30 ports in net.ipv4.ip_local_port_range; expected at least 8192",
    ),
    setting(
        "users who may have no namespaces",
        f"{SYS}/user/max_user_namespaces",
        "0\n",
        "user.max_user_namespaces 0; expected more as on 3 of 4 nodes",
    ),
    setting(
        "isolated CPUs",
        "/sys/devices/system/cpu/isolated",
        "2-191\n",
        "isolated CPUs 2-191; expected nothing as on 3 of 4 nodes",
    ),
    Fault(
        "a library that every program loads first",
        lambda image: image,
        {"host.kernel_settings": CONCERN},
        "/libm.so.6; expected ",
        beside=PRELOADING,
    ),
    Fault(
        "a slurmd that may run on one CPU",
        lambda image: image,
        {"host.kernel_settings": CONCERN},
        "CPUs of slurmd 0; expected 0-",
        beside=ON_ONE_CPU,
        marks=(needs_two_cpus,),
    ),
    Fault(
        "a kernel that has seen a machine check",
        lambda image: with_file(image, f"{SYS}/kernel/tainted", "12304\n"),
        {"host.kernel_taint": CONCERN},
        "the kernel is tainted by a machine check (M); expected none since boot",
    ),
    Fault(
        "a /tmp that only root may write to",
        lambda image: with_file(image, "/tmp", Folder(0o700)),
        {"host.shared_folders": FAIL},
        "/tmp has mode 0700; expected 1777",
    ),
    Fault(
        "a /var/tmp where everybody may remove everything",
        lambda image: with_file(image, "/var/tmp", Folder(0o777)),
        {"host.shared_folders": CONCERN},
        "/var/tmp has mode 0777; expected 1777",
    ),
    Fault(
        "a link at a hundredth of its speed",
        lambda image: with_file(image, SPEED, "1000\n"),
        {"network.link_speed": CONCERN},
        "speed of ens32 1 Gbit/s; expected 100 Gbit/s as on 3 of 4 nodes",
        base=of_100_gbit,
    ),
    Fault(
        "a node that runs out of open files",
        lambda image: with_file(image, FILES, "68813\t0\t98304\n"),
        {"host.open_files": CONCERN},
        "68813 of 98304 files are open; expected less than 70 %",
    ),
    Fault(
        "a node that does not say how many files may be open",
        lambda image: with_file(image, FILES, "68813\n"),
        {"host.open_files": INCOMPLETE},
        "max_files could not be read (EINVAL)",
    ),
    Fault(
        "a node that runs out of process ids",
        lambda image: with_file(
            with_file(image, f"{KERNEL}/pid_max", "32768\n"), "/proc/loadavg", "0.52 0.58 0.59 2/22938 98765\n"
        ),
        {"host.process_ids": CONCERN, "host.kernel_settings": CONCERN},
        "22938 of 32768 (kernel.pid_max); expected less than 70 %",
    ),
    Fault(
        "a kernel that lets few files be open",
        lambda image: with_file(image, FILES, "480\t0\t2000\n"),
        {"host.open_files": CONCERN},
        "fs.file-max 2000; expected at least 65536",
    ),
    Fault(
        "a kernel that has few process ids",
        lambda image: with_file(
            with_file(image, f"{KERNEL}/pid_max", "4096\n"), "/proc/loadavg", "0.52 0.58 0.59 2/1200 3765\n"
        ),
        {"host.process_ids": CONCERN, "host.kernel_settings": CONCERN},
        "kernel.pid_max 4096; expected at least 32768",
    ),
    Fault(
        "a node that runs out of threads",
        lambda image: with_file(image, f"{KERNEL}/threads-max", "5000\n"),
        {"host.process_ids": CONCERN},
        "4312 of 5000 (kernel.threads-max)",
    ),
    Fault(
        "a slurmd that may not start much more",
        lambda image: with_pids(image, "slurmd", 512, 512),
        {"host.process_ids": CONCERN},
        "512 of 512 (/sys/fs/cgroup/system.slice/slurmd.service)",
    ),
    Fault(
        "a control group that does not say what it has",
        lambda image: with_file(with_pids(image, "slurmd", 0, 512), PIDS, "many\n"),
        {"host.process_ids": INCOMPLETE},
        "pids could not be read (EINVAL)",
    ),
)
