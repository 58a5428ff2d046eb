"""Command output of healthy nodes, as users save it in files."""

from __future__ import annotations

import json

RULE = "+---------------------------+------------------------------------------------+\n"


def _row(name: str, cell: str) -> str:
    return f"| {name:<25} | {cell:<46} |\n"


def dcgm_table(memory: tuple[str, ...] = ("Pass - All",), warning: str = "") -> str:
    """The table of `dcgmi diag -r 2` of DCGM 3."""
    tests = ("Denylist", "NVML Library", "CUDA Main Library", "Persistence Mode", "Inforom")
    notes = _row("Warning", warning) if warning else ""
    return (
        f"Successfully ran diagnostic for group.\n{RULE}"
        + _row("Diagnostic", "Result")
        + "+===========================+================================================+\n"
        + "|-----  Metadata  ----------+------------------------------------------------|\n"
        + _row("DCGM Version", "3.3.9")
        + "|-----  Deployment  --------+------------------------------------------------|\n"
        + "".join(_row(test, "Pass") for test in tests)
        + "+-----  Integration  -------+------------------------------------------------+\n"
        + _row("PCIe", "Pass - All")
        + "+-----  Hardware  ----------+------------------------------------------------+\n"
        + "".join(_row("" if number else "GPU Memory", cell) for number, cell in enumerate(memory))
        + notes
        + "+-----  Stress  ------------+------------------------------------------------+\n"
        + RULE
    )


def dcgm_json(status: str = "Pass", severity: int = 0, warning: str = "", dcgm: int = 4) -> str:
    """The JSON of `dcgmi diag -r 2 -j`, with this result of GPU 3's memory."""

    def result(gpu: int) -> dict[str, object]:
        named = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu} if dcgm == 4 else {"gpu_ids": f"{gpu}"}
        if gpu != 3 or status == "Pass":
            return {**named, "status": "Pass"}
        reported = {"error_category": 10, "error_id": 12, "error_severity": severity, "warning": warning}
        return {**named, "status": status, "warnings": [reported]}

    tests = [{"name": name, "results": [result(gpu) for gpu in range(8)]} for name in ("memory",)]
    deployed = {"name": "software", "results": [{"gpu_ids": "0,1,2,3,4,5,6,7", "status": "Pass"}]}
    categories = [{"category": "Deployment", "tests": [deployed]}, {"category": "Hardware", "tests": tests}]
    root = {"test_categories": categories}
    if dcgm == 4:
        return json.dumps({"DCGM Diagnostic": root, "metadata": {"version": "4.2.3"}}, indent=2)
    return json.dumps({"DCGM GPU Diagnostic": {**root, "version": "3.3.9"}}, indent=2)


NCCL_NETWORK = """\
NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
NCCL INFO Using network Libfabric
"""
NCCL_ROWS = """\
     1048576        262144     float     sum      -1    43.48   24.11   45.21      0    43.40   24.16   45.30      0
    67108864      16777216     float     sum      -1   326.60  205.45  385.22      0   326.50  205.55  385.41      0
  1073741824     268435456     float     sum      -1  4253.00  252.47  473.38      0  4255.40  252.33  473.12      0
"""
NCCL_SUMMARY = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 301.107\n#\n"


def nccl_log(network: str = NCCL_NETWORK, rows: str = NCCL_ROWS, summary: str = NCCL_SUMMARY) -> str:
    """A log of all_reduce_perf on two nodes."""
    where = "".join(
        f"gpu00{node}:{700 + node}:{700 + node} [0] {line}\n" for line in network.splitlines() for node in (1, 2)
    )
    ranks = [(rank, f"gpu00{1 + rank // 8} device {rank % 8:>2} [0000:53:00] NVIDIA H100") for rank in range(16)]
    devices = "".join(f"#  Rank {rank:>2} Group  0 Pid {700 + rank:>6} on     {place}\n" for rank, place in ranks)
    sizes = "minBytes 1048576 maxBytes 1073741824 step: 64(factor)"
    return f"""\
# nccl-tests version 2.17.6 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 {sizes} warmup iters: 5 iters: 100 agg iters: 1 validation: 1 graph: 0
#
# Using devices
{devices}NCCL version 2.27.7+cuda12.9
{where}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}{summary}"""


def nccom_log(average: str = "Avg bus bandwidth:      39.5000GB/s\n") -> str:
    """A log of a nccom-test version that prints GB and means it."""
    return f"""\
size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)
  65536           16384    fp32            8.18           8.01           7.76
8388608         2097152    fp32          231.10          36.30          71.33
{average}"""


SCONTROL = """\
NodeName=gpu001 Arch=x86_64 CoresPerSocket=48
   CPUAlloc=0 CPUEfctv=192 CPUTot=192 CPULoad=0.12
   AvailableFeatures=p5 ActiveFeatures=p5
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=10.1.2.3 NodeHostName=gpu001 Version=24.11.3
   OS=Linux 6.8.0-1021-aws #23~22.04.1-Ubuntu SMP Tue Dec 10 16:50:46 UTC 2024
   RealMemory=2063492 AllocMem=0 FreeMem=2001234 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu
   BootTime=2026-07-21T08:00:00 SlurmdStartTime=2026-07-21T08:02:00
   CfgTRES=cpu=192,mem=2063492M,billing=192,gres/gpu=8 AllocTRES= CurrentWatts=0 AveWatts=0
   Extra=i-0abc
"""


def _dmidecode(product: str) -> str:
    rows = (
        f"\tManufacturer: Amazon EC2\n\tProduct Name: {product}\n\tVersion: Not Specified\n\tSerial Number: ec2f3c1d\n"
    )
    return f"# dmidecode 3.3\nSMBIOS 2.7 present.\n\nHandle 0x0001, DMI type 1, 27 bytes\nSystem Information\n{rows}\n"


DF = """\
Filesystem     Type     1024-blocks      Used Available Capacity Mounted on
/dev/root      ext4       203056560  59000000  144056560  30% /
devtmpfs       devtmpfs  1056561954         0 1056561954       0% /dev
tmpfs          tmpfs     1056561954         0 1056561954       0% /dev/shm
tmpfs          tmpfs      211312392      2104  211310288       1% /run
"""


def dmesg(*further: str) -> str:
    """The kernel's log since its boot."""
    lines = (
        "Linux version 6.8.0-1021-aws (buildd@lcy02) (x86_64-linux-gnu-gcc-12) #23~22.04.1-Ubuntu SMP",
        "DMI: Amazon EC2 p5.48xlarge/, BIOS 1.0 10/16/2017",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build",
        *further,
    )
    return "".join(f"[{9.25 * number:>12.6f}] {line}\n" for number, line in enumerate(lines))


P5 = {
    "boot.txt": "86400.50 16500000.00\nLinux gpu001 6.8.0-1021-aws #23~22.04.1-Ubuntu SMP x86_64 GNU/Linux\n",
    "dmidecode.txt": _dmidecode("p5.48xlarge"),
    "dcgmi-diag.txt": dcgm_table(),
    "dcgmi-diag.json": dcgm_json(),
    "nccl-all_reduce.log": nccl_log(),
    "scontrol.txt": SCONTROL,
    "df.txt": DF,
    "dmesg.txt": dmesg(),
    "nvidia-smi-L.txt": "".join(
        f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index}f0c2a1e-7b1d-4c9e-9f6a-2d3e4f5a6b7c)\n"
        for index in range(8)
    ),
}
TRN1 = {"dmidecode.txt": _dmidecode("trn1.32xlarge"), "nccom-test.log": nccom_log()}
