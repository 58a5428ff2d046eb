"""A healthy node's kernel log since boot."""

from __future__ import annotations

from tests.testbed.pci import EFA_NAMES, GPU_BUSES, NVSWITCH_BUSES

Line = tuple[float, str]  # seconds since the boot, and the text


def kmsg(lines: list[Line]) -> str:
    """The lines in /dev/kmsg's format: `level,sequence,microseconds,-;text`."""
    return "".join(f"6,{number},{int(at_s * 1e6)},-;{text}\n" for number, (at_s, text) in enumerate(lines))


def ec2_lines(instance_type: str, kernel: str) -> list[Line]:
    """Lines of any EC2 instance."""
    root = f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=PARTUUID=5a2e8f70 ro console=ttyS0"
    return [
        (0.0, f"Linux version {kernel} (buildd@lcy02) (x86_64-linux-gnu-gcc-12) #23~22.04.1-Ubuntu SMP"),
        (0.0, f"Command line: {root} panic=-1"),
        (0.0, "BIOS-provided physical RAM map:"),
        (0.0, f"DMI: Amazon EC2 {instance_type}/, BIOS 1.0 10/16/2017"),
        (0.0, "Hypervisor detected: KVM"),
        (0.02, "mce: CPU supports 0 MCE banks"),
        (1.1, "EDAC MC: Ver: 3.0.0"),
        (2.4, "NET: Registered PF_INET6 protocol family"),
        (3.6, "nvme nvme0: 32/0/0 default/read/poll queues\n SUBSYSTEM=nvme\n DEVICE=c241:0"),
        (6.1, "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode. Quota mode: none."),
        (9.3, "ena 0000:00:05.0: ENA device version: 0.10\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:05.0"),
        (12.8, "Lustre: Lustre: Build Version: 2.15.6"),
        (13.0, 'audit: type=1400 audit(1763583600.100:2): apparmor="STATUS" operation="profile_load"'),
    ]


def p5_lines(driver: str, kernel: str) -> list[Line]:
    """Lines of a p5.48xlarge."""
    module = f"for x86_64  {driver}"
    lines = [*ec2_lines("p5.48xlarge", kernel), (15.0, "Elastic Fabric Adapter (EFA) v2.17.3g")]
    for number, name in enumerate(EFA_NAMES):
        lines.append((15.1 + number / 100, f"infiniband {name}: efa_device registered\n SUBSYSTEM=infiniband"))
    lines += [
        (17.0, "nvidia: loading out-of-tree module taints kernel."),
        (17.2, "nvidia-nvlink: Nvlink Core is being initialized, major device number 234"),
        (17.5, f"NVRM: loading NVIDIA UNIX Open Kernel Module {module}  Release Build  (dvs-builder@U22)"),
    ]
    for number, bus in enumerate(GPU_BUSES):
        lines.append((18.0 + number / 10, f"nvidia 0000:{bus:02x}:00.0: enabling device (0140 -> 0142)"))
    for number, bus in enumerate(NVSWITCH_BUSES):
        device = f"0000:{bus:02x}:00.0, Vendor Id = 0x10de, Device Id = 0x22a3"
        lines.append((20.0 + number / 10, f"nvidia-nvswitch{number}: Probing device {device}"))
    return [
        *lines,
        (24.0, f"nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver {module}"),
        (25.1, "nvidia_uvm: module uses symbols from proprietary module nvidia, inheriting taint."),
        (26.0, "gdrdrv:gdrdrv_init:loading gdrdrv version 2.5 built for open-source NVIDIA driver"),
    ]


def edac_controller(corrected: int = 0, uncorrected: int = 0) -> dict[str, str]:
    """A memory controller in sysfs, with a module that has counted these errors in a day."""
    at = "/sys/devices/system/edac/mc/mc0"
    counts = {"ce_count": corrected, "ue_count": uncorrected, "seconds_since_reset": 86_000}
    files = {f"{at}/{name}": f"{count}\n" for name, count in counts.items()}
    files |= {f"{at}/mc_name": "Skylake Socket#0 IMC#0\n", f"{at}/dimm1/dimm_label": "CPU_SrcID#0_MC#0_Chan#1_DIMM#0\n"}
    files |= {f"{at}/dimm1/dimm_ce_count": f"{corrected}\n", f"{at}/dimm1/dimm_ue_count": f"{uncorrected}\n"}
    files |= {f"{at}/dimm0/dimm_ce_count": "0\n", f"{at}/dimm0/dimm_ue_count": "0\n"}
    return files


def report(number: int, severity: str, *sections: str) -> list[str]:
    """The firmware's report of one error, as the kernel logs it."""
    head = f"{{{number}}}[Hardware Error]: "
    named = [f"{head}  {section}" for section in sections]
    return [f"{head}event severity: {severity}", f"{head} Error 0, type: {severity}", *named]
