"""A whole machine with systemd, disks, slots and its own kernel: injected faults are named, and nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.counterparts import installed
from tests.counterparts.machine.machine import DISKS, NAME, Machine, booted
from tests.testbed.compiled import program
from tests.testbed.needs import needs_gcc, needs_sshd

pytestmark = [needs_sshd, needs_gcc, installed.needs(NAME)]

FAIL, CONCERN = Verdict.FAIL, Verdict.CONCERN
TRUE_OF_IT = {  # always true of it: no time or name server, Debian's limits, and a busy host
    "host.clock_sync",
    "host.clocksource",
    "host.cpu_steal",
    "host.iowait",
    "host.ulimits",
    "network.nameservers",
}

SERVICES = """
echo Nonsense=1 >>/etc/slurm/slurm.conf
systemctl restart slurmd || :
printf '[Service]\\nType=oneshot\\nExecStart=/bin/false\\n' >/etc/systemd/system/motd-news.service
systemctl daemon-reload
systemctl start motd-news || :
"""
FULL = """
mkdir -p /opt/dlami/nvme /opt/sagemaker
mkfs.ext4 -q /dev/disk/by-id/nvme-*serial0
mount /dev/disk/by-id/nvme-*serial0 /opt/dlami/nvme
dd if=/dev/zero of=/opt/dlami/nvme/checkpoint bs=1M 2>/dev/null || :
truncate -s 32M /var/few
mkfs.ext4 -q -N 16 /var/few
mount -o loop /var/few /opt/sagemaker
number=0
while touch /opt/sagemaker/$number 2>/dev/null; do number=$((number + 1)); done
"""
READ_ONLY = """
mkdir -p /data /archive
mkfs.ext4 -q /dev/disk/by-id/nvme-*serial2
mount -o errors=remount-ro /dev/disk/by-id/nvme-*serial2 /data
echo injected >/sys/fs/ext4/$(basename $(findmnt -no SOURCE /data))/trigger_fs_error
truncate -s 32M /var/archive
mkfs.ext4 -q /var/archive
echo '/var/archive /archive ext4 loop,nofail 0 0' >>/etc/fstab
mount -o loop,ro /var/archive /archive
"""
CRASHES = 2100
CRASHING = Path(__file__).with_name("crashes.c")
HOOK = Path(__file__).with_name("allow_devices.py")
FLOOD = """
sysctl -qw kernel.printk_ratelimit=0
base64 -d >/usr/local/bin/crashes <<'END'
{program}
END
chmod +x /usr/local/bin/crashes
/usr/local/bin/crashes {crashes}
rm /usr/local/bin/crashes
sysctl -qw kernel.printk_ratelimit=5
"""
SERVER = """
mkdir -p /srv/shared /shared
echo '/srv/shared 127.0.0.1(rw,no_root_squash,insecure)' >/etc/exports
systemctl start nfs-server
mount -t nfs -o vers=4.2,hard 127.0.0.1:/srv/shared /shared
rpc.nfsd 0
"""
DRIVER = """
disk=$(readlink -f /dev/disk/by-id/nvme-*serial1)
device=$(readlink -f /sys/block/$(basename $disk)/device/device)
basename $device >/sys/bus/pci/drivers/nvme/unbind
"""
NETWORK = """
modprobe rdma_rxe
rdma link add rxe0 type rxe netdev $(ip -o route show 10.0.2.0/24 | sed 's/.*dev //;s/ .*//')
modprobe bonding max_bonds=0
modprobe dummy numdummies=0
adapter=$(basename /sys/bus/pci/drivers/e1000e/*/net/*)
ip link add bond0 type bond mode active-backup miimon 100
ip link add dummy0 type dummy
ip link set dummy0 master bond0
ip link set $adapter master bond0
ip address add 10.9.0.1/24 dev bond0
ip link set bond0 up
"""
HARDWARE = """
for interval in /sys/devices/system/machinecheck/machinecheck*/check_interval; do echo 1 >$interval; done
modprobe aer_inject
address=$(basename /sys/bus/pci/drivers/e1000e/0000:*)
python3 - ${address#0000:} <<'END'
import struct, sys
bus, device, function = (int(part, 16) for part in sys.argv[1].replace(".", ":").split(":"))
error = struct.pack("<BBBxIIIIIIH2x", bus, device, function, 0x4000, 0, 0, 0, 0, 0, 0)  # a completion that timed out
open("/dev/aer_inject", "wb", buffering=0).write(error)
END
"""
JOB = """
modprobe fuse
mkdir -p /run/job/root/usr /run/job/root/proc /run/job/root/dev
for name in bin sbin lib lib64; do ln -s usr/$name /run/job/root/$name; done
cat >/run/job/config.json <<'END'
{config}
END
runc --systemd-cgroup run --detach --bundle /run/job job </dev/null >/dev/null 2>&1
python3 - /sys/fs/cgroup/system.slice/runc-job.scope <<'END'
{hook}
END
"""
GPU = {"type": "c", "major": 10, "minor": 229}  # a device that opens
OF_JOB = {
    "ociVersion": "1.0.2",
    "process": {
        "user": {"uid": 0, "gid": 0},
        "args": ["/usr/bin/sleep", "infinity"],
        "env": ["PATH=/usr/sbin:/usr/bin"],
        "cwd": "/",
    },
    "root": {"path": "root"},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["bind"]},
    ],
    "linux": {
        "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
        "cgroupsPath": "system.slice:runc:job",
        "devices": [{**GPU, "path": f"/dev/{name}"} for name in ("nvidia0", "nvidiactl", "nvidia-uvm")],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
    },
}
OF_A_DEAD_SERVER = {"host.d_state", "storage.file_system_errors"}  # after minutes, which a busy machine takes
LOGGED = "for second in $(seq 120); do dmesg | grep -q '{}' && break; sleep 1; done; dmesg | grep '{}'"
GONE = "for second in $(seq 300); do [ -e /sys/block/{disk} ] || break; sleep 1; done; [ ! -e /sys/block/{disk} ]"
LAST_CHECK = "CPU 1: Machine Check: 0 Bank 9"
CORRECTED = "0x9c00004000010090 0 0x1000 0x86"  # valid, corrected, of memory, with its address


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp(NAME)) as running:
        yield running


@pytest.fixture(scope="module")
def disks(machine: Machine) -> dict[str, str]:
    """The kernel's name for each disk, as they are found in any order."""
    scripts = {f"disk{number}": f"readlink -f /dev/disk/by-id/nvme-*serial{number}" for number in range(DISKS)}
    return {disk: Path(machine.shell(script).stdout.strip()).name for disk, script in scripts.items()}


@pytest.fixture(scope="module")
def untouched(machine: Machine) -> dict[str, Result]:
    """The results after boot."""
    return machine.evaluated()


@pytest.fixture(scope="module")
def sick(machine: Machine, untouched: dict[str, Result]) -> dict[str, Result]:
    """The results with many unrelated faults at once."""
    machine.befall("set_link adapter off")
    flood = FLOOD.format(program=b64encode(program(CRASHING)).decode(), crashes=CRASHES)
    for script in (SERVICES, FULL, READ_ONLY, flood, SERVER, DRIVER, NETWORK, HARDWARE):
        ran = machine.shell(script)
        assert ran.returncode == 0, f"{script}\n{ran.stderr}"
    machine.befall(*(f"mce {cpu} {bank} {CORRECTED}" for cpu in range(2) for bank in range(4, 10)))
    assert machine.shell(LOGGED.format(LAST_CHECK, LAST_CHECK)).returncode == 0
    return machine.evaluated()


@pytest.fixture(scope="module")
def worse(machine: Machine, sick: dict[str, Result], disks: dict[str, str]) -> dict[str, Result]:
    """The results after a disk in use is pulled out, and the clock jumps by a year."""
    machine.befall("device_del nvme0")
    assert machine.shell(GONE.format(disk=disks["disk0"])).returncode == 0
    machine.shell("date -s '+1 year'")
    return machine.evaluated()


def findings(results: Mapping[str, Result]) -> dict[str, Verdict]:
    """Findings that are not true of it from the start."""
    verdicts = {name: result.verdict for name, result in results.items() if result.verdict in (FAIL, CONCERN)}
    return {name: verdict for name, verdict in verdicts.items() if name not in TRUE_OF_IT}


SICK = {
    "host.services": (FAIL, "(takes Slurm's jobs); expected every enabled service active"),  # starting, or about to
    "host.device_drivers": (FAIL, "0000:02:00.0: no driver holds an NVMe controller (1b36:0010)"),
    "storage.space": (FAIL, "/opt/dlami/nvme (ext4) has 100 % in use, /opt/sagemaker (ext4) has 100 % of its inodes"),
    "storage.mounts_alive": (FAIL, "/shared: nfs4 from 127.0.0.1:/srv/shared hangs"),
    "storage.mounts_writable": (FAIL, "/archive: ext4 read-only; expected read-write, as in /etc/fstab"),
    "storage.disk_errors": (FAIL, "{disk2}: ext4 has stopped writing"),
    "host.pcie_aer": (CONCERN, "nonfatal error of 0000:03:00.0"),
    "gpu.pcie_errors": (CONCERN, "0000:03:00.0: 1 uncorrected PCIe errors"),
    "host.mce_edac": (CONCERN, "12 corrected errors a day (in the log"),
    "host.segfaults": (CONCERN, "more crashes, each of a differently named process"),
    "network.interfaces_up": (CONCERN, "; expected a link"),
}


def test_every_finding_on_the_untouched_machine_is_true(untouched: dict[str, Result]) -> None:
    assert untouched["node.reachable"].verdict is Verdict.PASS
    assert findings(untouched) == {}


def test_the_switch_above_a_disk_is_the_one_that_the_machine_has(
    machine: Machine, untouched: dict[str, Result]
) -> None:
    assert untouched["gpu.pcie_switches"].verdict is Verdict.NOT_APPLICABLE  # nothing of NVIDIA's is below it
    pci = machine.collected("pci")
    (switch,) = pci["switches"]
    assert (switch["vendor"], switch["device"]) == ("104c", "8232")  # of Texas Instruments, as QEMU has it
    assert (switch["width"], switch["speed"]) == (1, "2.5 GT/s PCIe")
    (path,) = (device["path"] for device in pci["devices"] if switch["address"] in device["path"])
    host_bridge, root_port, upper, lower = path
    assert (host_bridge, upper, switch["path"]) == ("pci0000:00", switch["address"], [host_bridge, root_port])
    models = machine.shell(f"cd /sys/bus/pci/devices; cat {root_port}/device {lower}/device").stdout.split()
    assert models == ["0x000c", "0x8233"]


def test_a_reload_of_systemd_takes_the_devices_that_a_hook_allowed_in_the_cgroup_alone(
    machine: Machine, untouched: dict[str, Result]
) -> None:
    begun = machine.shell(JOB.format(config=json.dumps(OF_JOB), hook=HOOK.read_text()))
    assert begun.returncode == 0, begun.stderr
    of_job = ("-m", "job", "--in-container", "runc exec job")
    before = machine.evaluated(*of_job)["software.container_devices"]
    assert before.verdict is Verdict.PASS, before.message
    machine.shell("systemctl daemon-reload")
    after = machine.evaluated(*of_job)["software.container_devices"]
    machine.shell("runc delete --force job")
    assert after.verdict is FAIL
    assert "runtime: the device cgroup refuses /dev/nvidia0; expected" in after.message


@pytest.mark.parametrize("check", SICK)
def test_each_fault_is_named_by_its_check(sick: dict[str, Result], disks: dict[str, str], check: str) -> None:
    verdict, message = SICK[check]
    assert sick[check].verdict is verdict, sick[check].message
    assert message.format(**disks) in sick[check].message


def test_crashes_of_a_user_hide_no_line_of_the_kernels(machine: Machine, sick: dict[str, Result]) -> None:
    log = machine.collected("kernel_log")
    kept = "\n".join(line[1] for line in log["lines"])
    assert log["dropped"] > 0  # crashes: there are more than are kept
    assert "trigger_test_error" in kept  # logged before them; what HARDWARE causes was logged after
    assert "EXT4-fs-0" not in "".join(result.message for result in sick.values())


def test_the_faults_invent_no_other(sick: dict[str, Result]) -> None:
    assert findings(sick).keys() - SICK.keys() <= OF_A_DEAD_SERVER


def test_soft_roce_is_no_fabric_that_has_to_be_sound(sick: dict[str, Result]) -> None:
    assert sick["network.ib_ports"].verdict is Verdict.NOT_APPLICABLE
    incomplete = {name for name, result in sick.items() if result.verdict is Verdict.INCOMPLETE}
    assert not {name for name in incomplete if name.startswith("network.")}


def test_a_disk_that_is_pulled_out_while_in_use_is_gone(worse: dict[str, Result], disks: dict[str, str]) -> None:
    message = worse["storage.mounts_alive"].message
    assert f"/opt/dlami/nvme: ext4 from /dev/{disks['disk0']} says ENODEV" in message


def test_a_clock_that_jumps_by_a_year_changes_no_verdict(sick: dict[str, Result], worse: dict[str, Result]) -> None:
    before, after = findings(sick), findings(worse)
    assert {name: worse[name].message for name in before if after.get(name) is not before[name]} == {}
    assert after.keys() - before.keys() <= OF_A_DEAD_SERVER
