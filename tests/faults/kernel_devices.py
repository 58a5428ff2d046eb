"""The kernel log's reports on devices: the PCI bus, network adapters, disks, and file servers."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, NA, Fault
from tests.faults.kernel_log import logged
from tests.testbed.node import with_kernel_line
from tests.testbed.pci import GPU_BUSES

AER = "PCIe Bus Error: severity={}, type=Transaction Layer, (Receiver ID)"
EVICTED = "LustreError: 167-0: fsx-OST0001-osc-ffff8a01b2c3d400: This client was evicted by fsx-OST0001; in progress"
EFA = "efa 0000:4f:00.0 rdmap79s0: "
NIC = "mlx5_core 0000:5c:00.0: "
CABLE = f"{NIC}Port module event: module 0, Cable"
DISK = "nvme3n1"
GPU = f"0000:{GPU_BUSES[0]:02x}:00.0"

FAULTS = (
    Fault(
        "a fatal PCIe error of a GPU",
        logged(f"pcieport 0000:50:01.0: AER: Uncorrected (Fatal) error received: {GPU}"),
        {"host.pcie_aer": FAIL},
        f"fatal error of {GPU} (GPU 0, GPU-",
    ),
    Fault(
        "a PCIe error that is not fatal",
        logged(
            "pcieport 0000:80:01.1: AER: Uncorrectable (Non-Fatal) error message received from 0000:81:00.0",
            "nvme 0000:81:00.0: " + AER.format("Uncorrectable (Non-Fatal)"),
        ),
        {"host.pcie_aer": CONCERN},
        "nonfatal error of 0000:81:00.0 (at 20",
    ),
    Fault(
        "corrected PCIe errors without end",
        logged(*(f"nvidia {GPU}: " + AER.format("Corrected") for _ in range(500))),
        {"host.pcie_aer": CONCERN},
        "500 times",
    ),
    Fault(
        "an EFA device that does not answer its driver",
        logged(
            EFA + "The device didn't send any completion for admin cmd CREATE_QP(1) status 0 (ctx 0x1, sq producer: 5"
        ),
        {"network.efa_driver_errors": FAIL},
        "rdmap79s0: an admin command got no answer",
    ),
    Fault(
        "an EFA device of which only what followed its loss is in the log",
        logged(EFA + "Admin queue is closed", EFA + "Failed to submit command CREATE_QP (opcode 1) err -19"),
        {"network.efa_driver_errors": FAIL},
        "rdmap79s0: the driver sends it no more commands",
    ),
    Fault(
        "an EFA device that is lost again after its driver was reloaded",
        logged(
            EFA + "Reset indication didn't turn off",
            "efa 0000:4f:00.0 efa_0: IB device registered",
            EFA + "Admin queue is closed",
        ),
        {"network.efa_driver_errors": FAIL},
        "rdmap79s0: the driver sends it no more commands",
    ),
    Fault(
        "an EFA command that failed",
        logged(EFA + "Failed to process command CREATE_AH (opcode 5) comp_status 3 err -12"),
        {"network.efa_driver_errors": CONCERN},
        "rdmap79s0: a command failed",
    ),
    Fault(
        "a Lustre client that was evicted",
        logged(EVICTED),
        {"storage.file_system_errors": CONCERN},
        "fsx-OST0001: evicted this client",
    ),
    Fault(
        "an NFS server that does not respond",
        logged("nfs: server 10.0.0.9 not responding, still trying"),
        {"storage.file_system_errors": CONCERN},
        "10.0.0.9: does not respond",
    ),
    Fault(
        "a mounted disk whose file system has shut down",
        lambda image: logged(
            f"XFS ({DISK}): log I/O error -5",
            f"XFS ({DISK}): Filesystem has been shut down due to log error (0x2).",
        )(
            replace(
                image,
                mounted=tuple(line.replace("/dev/mapper/vg.01-lv_ephemeral", f"/dev/{DISK}") for line in image.mounted),
            )
        ),
        {"storage.disk_errors": FAIL},
        f"{DISK}: XFS has shut it down (at 20",
    ),
    Fault(
        "a file system that stopped, and is not mounted under that name",
        logged("EXT4-fs error (device dm-3): ext4_journal_check_start:87: comm python3: Detected aborted journal"),
        {"storage.disk_errors": CONCERN},
        "dm-3: ext4 found an error",
    ),
    Fault(
        "an NVMe disk whose commands time out",
        logged("nvme nvme1: I/O tag 333 (a14d) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0) size:4096"),
        {"storage.disk_errors": CONCERN},
        "nvme1: a command timed out",
    ),
    Fault(
        "a network adapter that does not report to its driver",
        logged("ena 0000:00:05.0 ens5: Keep alive watchdog timeout."),
        {"network.ena_driver_errors": CONCERN},
        "ens5: the device sent no keep-alive for seconds, and was reset",
    ),
    Fault(
        "a full neighbour table",
        logged("neighbour: arp_cache: neighbor table overflow!"),
        {"network.kernel_tables": CONCERN},
        "no room in arp_cache",
    ),
    Fault(
        "a full connection table",
        logged(*("nf_conntrack: nf_conntrack: table full, dropping packet" for _ in range(50))),
        {"network.kernel_tables": CONCERN},
        "no room in conntrack (50 times",
    ),
    Fault(
        "a link that flaps",
        logged(*(f"{CABLE} {word}" for _ in range(7) for word in ("unplugged", "plugged"))),
        {"network.link_flaps": CONCERN},
        "0000:5c:00.0: cable unplugged (6 times",
    ),
    Fault(
        "a cable that was pulled",
        logged(f"{CABLE} plugged", f"{CABLE} unplugged"),
        {"network.link_flaps": CONCERN},
        "0000:5c:00.0: cable unplugged (at 20",
    ),
    Fault(
        "a bond without a link",
        logged("bond0: now running without any active interface!"),
        {"network.link_flaps": CONCERN},
        "bond0: no leg of the bond is up",
    ),
    Fault(
        "an adapter that is dead to its driver",
        logged(f"{NIC}poll_health:825:(pid 0): Fatal error 1 detected"),
        {"network.nic_driver_errors": FAIL},
        "0000:5c:00.0: its driver reports a fatal error (code 1)",
    ),
    Fault(
        "an adapter whose firmware reports an error of its own",
        logged(f"{NIC}print_health_info:389:(pid 0): synd 0x1: firmware internal error"),
        {"network.nic_driver_errors": FAIL},
        "its firmware reports firmware internal error",
    ),
    Fault(
        "an adapter whose firmware sends no heartbeat",
        logged(f"{NIC}poll_health:840:(pid 0): device's health compromised - reached miss count"),
        {"network.nic_driver_errors": FAIL},
        "its firmware sends no heartbeat",
    ),
    Fault(
        "an adapter that is too hot",
        logged(f"{NIC}temp_warn:165:(pid 0): High temperature on sensors with bit set 0 1"),
        {"network.nic_driver_errors": CONCERN},
        "0000:5c:00.0: it is too hot",
    ),
    Fault(
        "a GPU that uses memory that it may not",
        logged(f"nvidia {GPU}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x1d address=0x7f3a000 flags=0x0020]"),
        {"host.pcie_aer": CONCERN},
        "it accessed memory that it may not use",
    ),
    Fault(
        "a port that cut its device off",
        logged("pcieport 0000:80:01.1: DPC: containment event, status:0x1f01 source:0x0000"),
        {"host.pcie_aer": FAIL},
        "0000:80:01.1: the port cut its device off",
    ),
    Fault(
        "an NVMe disk that is gone",
        logged("nvme nvme1: Disabling device after reset failure: -19"),
        {"storage.disk_errors": FAIL},
        "nvme1: the disk is gone",
    ),
    Fault(
        "an array that has lost a disk",
        logged("md/raid1:md0: Disk failure on nvme3n1, disabling device."),
        {"storage.disk_errors": CONCERN},
        "md0: the array goes on without nvme3n1",
    ),
    Fault(
        "an array that has lost more disks than it can",
        logged("md/raid:md2: Cannot continue operation (2/4 failed)."),
        {"storage.disk_errors": FAIL},
        "md2: the array has lost too many disks to go on",
    ),
    Fault(
        "a pool of ZFS that cannot write",
        logged("WARNING: Pool 'data' has encountered an uncorrectable I/O failure and has been suspended."),
        {"storage.disk_errors": FAIL},
        "data: ZFS has suspended the pool",
    ),
    Fault(
        "a controller of disks that has failed",
        logged("megaraid_sas 0000:18:00.0: Adapter is OFFLINE"),
        {"storage.disk_errors": FAIL},
        "0000:18:00.0: its driver has given up on it",
    ),
    Fault(
        "an adapter of Intel's that is gone from the bus",
        logged("igb 0000:02:00.0 enp2s0: PCIe link lost, device now detached"),
        {"network.nic_driver_errors": FAIL},
        "enp2s0: it is gone from the bus",
    ),
    Fault(
        "a file system of BeeGFS that cannot be mounted",
        logged("beegfs: mount(4711): Configuration error: Initialization of common objects failed."),
        {"storage.file_system_errors": CONCERN},
        "a BeeGFS file system could not be mounted, though it may have been since",
    ),
    Fault(
        "monitors of Ceph that do not answer",
        logged("libceph: mon2 (1)10.0.0.247:6789 session lost, hunting for new mon"),
        {"storage.file_system_errors": CONCERN},
        "no monitor of Ceph answers",
    ),
    Fault(
        "an array without redundancy that has lost a disk",
        logged("md/raid0:md0: Disk failure on nvme3n1 detected, failing array."),
        {"storage.disk_errors": FAIL},
        "md0: the array is lost with nvme3n1",
    ),
    Fault(
        "an error of an adapter that no rule knows",
        lambda image: with_kernel_line(image, f"{NIC}something new is wrong at 0x17"),
        {"host.unknown_errors": NA},
        "logged, but no rule explains it: mlx5_core 0000:5c:00.0: something new is wrong at #",
    ),
)
