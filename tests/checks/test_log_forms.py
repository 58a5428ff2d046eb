"""Each kernel log line has its form's verdict; healthy ones have none, and no user's line fails a node."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evidence.node import Node
from tests.evidence.kernel_log.known_lines import KNOWN_LINES, KnownLine
from tests.evidence.kernel_log.logged import node, result, verdict

OF_NEURON, OF_MODULES = "neuron.no_hw_error", "gpu.peermem"  # these need more than the log
OVER_THE_LOG = sorted({form.check for form in log_forms().values() if form.check} - {OF_NEURON, OF_MODULES})


def logging(*lines: str) -> Node:
    return node(*((float(at), line) for at, line in enumerate(lines)))


def with_neuron(of: Node) -> Node:
    """The same node, with a Neuron device."""
    counters = dict.fromkeys(("mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected"), 0)
    driver = {"driver": "2.19", "on_bus": 1, "devices": [{"index": 0, "serial": "7", "connected": [], **counters}]}
    platform = {"vendor": "Amazon EC2", "product": "trn1.2xlarge"}
    collectors = {"neuron": Collected(Status.READ, driver), "platform": Collected(Status.READ, platform)}
    return replace(of, evidence=replace(of.evidence, collectors={**of.evidence.collectors, **collectors}))


FORGED = [line for line in KNOWN_LINES if log_forms()[line.form].check]


@pytest.mark.parametrize("line", FORGED, ids=lambda line: line.text[:60])
def test_no_line_fails_a_node_on_which_users_can_have_whole_records_written(line: KnownLine) -> None:
    of = with_neuron(logging(line.text))
    assert {verdict(check, of) for check in (*OVER_THE_LOG, OF_NEURON)} <= {
        Verdict.PASS,
        Verdict.CONCERN,
        Verdict.NOT_APPLICABLE,
    }
    assert verdict(OF_MODULES, of) is not Verdict.FAIL
    if log_forms()[line.form].scope in ("gpu", "nvswitch"):
        assert verdict("gpu.no_xid", of) is verdict("gpu.no_sxid", of) is Verdict.PASS


@pytest.mark.parametrize("line", KNOWN_LINES, ids=lambda line: line.text[:60])
def test_a_line_has_the_verdict_of_its_form(line: KnownLine) -> None:
    form = log_forms()[line.form]
    before = [known.text for name in form.after[:1] for known in KNOWN_LINES if known.form == name]
    times = int(PACKAGED.threshold(form.rate)) * 5 if form.rate and not form.cleared_by else 1
    if form.check and form.verdict in ("fail", "concern") and not form.event:
        expected = Verdict.CONCERN if form.verdict == "concern" or form.needs else Verdict.FAIL
        of = logging(*before, *[line.text] * times)
        outcome = result(form.check, with_neuron(of) if form.check == OF_NEURON else of)
        assert outcome.verdict is expected or form.check == OF_MODULES
        assert expected in {finding.verdict for finding in outcome.by_verdict}
    elif not form.check:
        assert {verdict(check, logging(line.text)) for check in OVER_THE_LOG} == {Verdict.PASS}


OF_MORE_THAN_THE_LOG = {"neuron.no_hw_error", "gpu.peermem"}
CHECKS = sorted({form.check for form in log_forms().values() if form.check} - OF_MORE_THAN_THE_LOG)
NIC = "mlx5_core 0000:5c:00.0"
HEALTHY = (
    "EDAC MC: Ver: 3.0.0",
    "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0: DEV 0000:7e:0c.0",
    "EDAC i10nm: No hbm memory",
    "RAS: Correctable Errors collector initialized.",
    "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
    "ERST: Error Record Serialization Table (ERST) support is initialized.",
    "mce: CPU supports 9 MCE banks",
    "CPU0: Thermal monitoring enabled (TM1)",
    "ENERGY_PERF_BIAS: Set to 'normal', was 'performance'",
    "check: Scanning for low memory corruption every 60 seconds",
    "ACPI: Early table checksum verification disabled",
    "ACPI Error: No handler for Region [SYSI] (0000000024c2bb06) [IPMI] (20210730/evregion-130)",
    "ACPI Error: Aborting method \\_SB.PMI0._GHL due to previous error (AE_NOT_EXIST) (20210730/psparse-529)",
    "[Firmware Bug]: TSC doesn't count with P0 frequency!",
    "[Firmware Info]: PCI: MMCONFIG at [mem 0x80000000-0x8fffffff] not reserved in ACPI motherboard resources",
    'PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and report a bug',
    "GPT: Use GNU Parted to correct GPT errors.",
    "Speculative Return Stack Overflow: WARNING: See https://kernel.org/doc/html/latest for mitigation options.",
    "i8042: Warning: Keylock active",
    "efa: module verification failed: signature and/or required key missing - tainting kernel",
    "efa 0000:00:1f.0: Setup irq:27 name:efa-mgmnt@pci:0000:00:1f.0",
    "efa 0000:00:1f.0 efa_0: Unregister ib device",
    "ena 0000:00:05.0: Forcing large headers and decreasing maximum TX queue size to 512",
    "ena 0000:00:05.0 eth0: Local page cache is disabled for less than 16 channels",
    "nvme nvme0: 2/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "nvme nvme0: globally duplicate IDs for nsid 1",
    "XFS (nvme0n1p1): Mounting V5 Filesystem",
    "XFS (nvme0n1p1): Ending clean mount",
    "EXT4-fs (sda1): re-mounted. Quota mode: none.",
    "EXT4-fs warning (device sda1): ext4_dx_add_entry: Directory (ino: 7) index full, reach max htree level :2",
    "RPC: Registered tcp NFSv4.1 backchannel transport module.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023",
    "nvidia: module license 'NVIDIA' taints kernel.",
    "Disabling lock debugging due to kernel taint",
    "nvidia-nvswitch0: open (major=236)",
    "nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
    "nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 12028, Data {0x00000000, 0x00000000}",
    "nvidia-peermem nv_get_p2p_free_callback:125 ERROR detected invalid context, skipping further processing",
    "nvidia-uvm: Loaded the UVM driver, major device number 235.",
    "NVRM: GPU Board Serial Number: 1234567890123",
    f"{NIC}: Port module event: module 1, Cable unplugged",
    f"{NIC}: mlx5_pcie_event:299:(pid 268): Detected insufficient power on the PCIe slot (27W).",
    f"{NIC}: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    f"{NIC} ens1f0np0: Link down",
    f"{NIC} ens1f0np0: Link up",
    "mlx_compat: loading out-of-tree module taints kernel.",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "spi-nor: probe of spi0.1 failed with error -524",
    "idxd 0000:6a:01.0: Unable to turn on user SVA feature.",
    "x86/split lock detection: #AC: crashing the kernel on kernel split_locks and warning on user-space split_locks",
    "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.293 msecs",
    "hrtimer: interrupt took 5234 ns",
    "workqueue: blk_mq_run_work_fn hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
    "kauditd_printk_skb: 12 callbacks suppressed",
    'audit: type=1400 audit(1763583600.1:7): apparmor="DENIED" name="EXT4-fs error (device nvme0n1p1)"',
    "Pid 123(python3) over core_pipe_limit",
    "hugetlbfs: clusterkit (77): Using mlock ulimits for SHM_HUGETLB is obsolete",
    "pcieport 0000:80:01.1: pciehp: Slot #12 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock-",
    "oom_reaper: reaped process 39 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "amdgpu 0000:c1:00.0: amdgpu: no uncorrectable hardware errors detected",
    "NVRM: Xid (PCI:0000:53:00): 43, pid=7, name=python3, Ch 00000008",
    "NVRM: Xid (PCI:0000:53:00): 45, pid=7, name=python3, Ch 00000008",
    "NVRM: Xid (PCI:0000:53:00): 13, pid=7, name=python3, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0)",
    "NVRM: Xid (PCI:0000:53:00): 31, pid=7, name=python3, Ch 00000008, intr 10000000. MMU Fault",
)


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_log_says_nothing(check: str) -> None:
    assert verdict(check, node(*((float(at), line) for at, line in enumerate(HEALTHY)))) is Verdict.PASS


OF_FIRMWARE = {"host.pcie_aer": ("apei", "apei_section", "apei_device")}  # its reports of devices on the bus
SEARCHED = re.compile(r"(?:journalctl -k -b|dmesg) \| grep (?:-(i?)E |-(i) |)(?:'([^']+)'|(\S+))")


@pytest.mark.parametrize("check", sorted({form.check for form in log_forms().values() if form.check}))
def test_the_command_to_see_it_by_hand_prints_each_line_that_the_check_evaluates(check: str) -> None:
    searched = SEARCHED.search(node_checks()[check].route.evidence)
    assert searched
    in_any_case, pattern = searched[1] or searched[2], searched[3] or searched[4]
    prints = re.compile(pattern, re.IGNORECASE if in_any_case else 0).search
    lines = [
        f"Nov 21 07:52:00 gpu001 kernel: {line.text}"
        for line in KNOWN_LINES
        if log_forms()[line.form].check == check or line.form in OF_FIRMWARE.get(check, ())
    ]
    assert lines
    assert [line for line in lines if not prints(line)] == []
