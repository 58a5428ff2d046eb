"""How to collect evidence that no file of a capture has."""

from __future__ import annotations

COMMANDS = {
    "cpus": "lscpu",
    "deep_health_check_log": "sudo cat /var/log/aws/clusters/sagemaker-deep-health-check.log",
    "edac": "grep . /sys/devices/system/edac/mc/mc*/*_count",
    "kernel": "uname -a; chronyc tracking",
    "lustre": "sudo lctl get_param health_check '*.*.import' 'llite.*.max_cached_mb'",
    "lustre_space": "lfs df; lfs df -i",
    "memory": "cat /proc/meminfo /sys/kernel/mm/transparent_hugepage/enabled; lscpu; numactl --hardware",
    "neuron": "lspci; neuron-ls",
    "neuron_ls": "neuron-ls --json-output",
    "nvme": "sudo nvme list",
    "versions": "dpkg -l; cat /proc/driver/nvidia/version; head -1 /opt/amazon/efa_installed_packages",
    "boot": "cat /proc/uptime; uname -a; date",
    "fabric_manager": "nv-fabricmanager --version",
    "k8s_nodes": "kubectl get nodes -o json",
    "kernel_log": "sudo dmesg",
    "libfabric": "fi_info -p efa -t FI_EP_RDM",
    "limits": "cat /proc/self/limits",
    "mounts": "cat /proc/self/mountinfo; df -PT; cat /etc/fstab",
    "nvml": "nvidia-smi -q",
    "pci": "lspci -Dnnvv",
    "platform": "sudo dmidecode -t system",
    "processes": "ps -eo pid,stat,etimes,wchan:32,comm",
    "rdma": "rdma link; ibv_devinfo -v",
    "roce": "mlnx_qos -i INTERFACE",
    "services": "systemctl list-units --all --type=service --plain",
}


def how_to_collect(collector: str) -> str:
    """What to say about evidence that no file of a capture has."""
    command = COMMANDS.get(collector)
    missing = "no file of this capture has it"
    return f"{missing}; collect: {command}" if command else f"{missing}, and no known form of output could"
