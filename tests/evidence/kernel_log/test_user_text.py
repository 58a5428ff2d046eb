"""Text that a user can put into the kernel log is no evidence against a node, whatever it says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log.collect import read
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN, topic_of
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import Event, Segfault
from clusterproof.plugins.evidence.kernel_log.facts import parse
from clusterproof.plugins.evidence.neuron.facts import hardware_errors
from tests.evidence.kernel_log.known_lines import EVERY_TEXT as OF_FORMS
from tests.evidence.kernel_log.logged import node, verdict
from tests.evidence.kernel_log.user_text import ANY_LENGTH, COMM_CHARACTERS, OF_A_PROCESS

OF_GPUS = (
    "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
    "NVRM: GPU 0000:53:00.0: GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 20034, Fatal, Link 28 LTSSM Fault Up",
    "nvidia-nvswitch0: Probing device 0000:08:00.0, Vendor Id = 0x10de",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09",
    "Linux version 6.8.0-1021-aws (buildd@lcy02) (gcc 12) #23 SMP",
    "-- Boot 0b6f4b1c2d3e4f5061728394a5b6c7d8 --",
)
SHORTEST = (  # forms that begin with few words
    "EDAC MC0: 1 UE",
    "EDAC MC0: UE on",
    "Oops: 0002 [#1]",
    "kernel BUG at x",
    "XFS (a): xfs_do",
    "ena 0:0: Keep a",
    "Linux version 6",
    "-- Reboot --",
    "[Hardware Error",
    "x, Fatal, link",
    "nfs: server x OK",
)
EVERY_TEXT = (*OF_FORMS, *OF_GPUS, *SHORTEST)
INDENTED = tuple(f"x {text}" for text in EVERY_TEXT)
OVER_LOG = (
    "host.no_oom_kill",
    "host.mce_edac",
    "host.pcie_aer",
    "host.lockups",
    "host.kernel_oops",
    "network.efa_driver_errors",
)


def evidence_of(record: str) -> tuple[Event, ...]:
    return parse([(1.0, record)])


def kinds(events: tuple[Event, ...]) -> set[type[Event]]:
    return {type(event) for event in events}


@pytest.mark.parametrize("deed", ANY_LENGTH)
def test_text_of_users_in_a_record_is_nothing_that_the_kernel_says(deed: str) -> None:
    record = ANY_LENGTH[deed]
    own = kinds(evidence_of(record.format("x")))
    believed = [text for text in (*EVERY_TEXT, *INDENTED) if not kinds(evidence_of(record.format(text))) <= own]
    assert believed == []


@pytest.mark.parametrize("deed", OF_A_PROCESS)
def test_a_process_that_names_itself_after_a_fault_is_none(deed: str) -> None:
    record = OF_A_PROCESS[deed]
    own = evidence_of(record.format("x"))
    names = [text[:COMM_CHARACTERS] for text in EVERY_TEXT]
    by_name = {name: evidence_of(record.format(name)) for name in names}
    assert {name: events for name, events in by_name.items() if kinds(events) != kinds(own)} == {}
    xids = [event for events in by_name.values() for event in events if isinstance(event, XidEvent)]
    assert [event for event in xids if event.code != 31] == []


NEURON = ("NEURON_HW_ERR=D", "neuron NEURON_H", "NEURON_HW_ERR=DMA_ERROR nd-id=3 action=TERMINATE_INSTANCE")


@pytest.mark.parametrize("deed", [*ANY_LENGTH, *OF_A_PROCESS])
def test_a_user_reports_no_error_of_a_neuron_device(deed: str) -> None:
    length = None if deed in ANY_LENGTH else COMM_CHARACTERS
    records = [(ANY_LENGTH | OF_A_PROCESS)[deed].format(text[:length]) for text in NEURON]
    assert hardware_errors(records) == ()


@pytest.mark.parametrize("deed", [*ANY_LENGTH, *OF_A_PROCESS])
def test_a_process_that_is_called_neuron_hides_no_fault_of_a_gpu(deed: str) -> None:
    for name in ("neuron", "neuron:f: nd3: ", "Neuron Driver S", "neuron 0000:x:"):
        record = (ANY_LENGTH | OF_A_PROCESS)[deed].format(name)
        of = node((1.0, OF_GPUS[0]), (2.0, record))
        assert (verdict("gpu.no_xid", of), of.users_write_the_log) == (Verdict.FAIL, False), record


@pytest.mark.parametrize(
    "record", ["neuron:f: nd3: reset request 12 initiated", "Neuron Driver Started with Version:2.x"]
)
def test_on_a_node_that_may_have_neuron_devices_users_write_what_looks_like_a_gpu_s_fault(record: str) -> None:
    of = node((1.0, OF_GPUS[0]), (2.0, record))
    assert (verdict("gpu.no_xid", of) is Verdict.FAIL, of.users_write_the_log) == (False, True)


@pytest.mark.parametrize("name", ["IN= OUT= ", "IN= OUT= MAC= ", "IN= OUT= SRC=", "IN= OUT= = = = ", "IN= OUT= a=b"])
def test_a_process_that_is_called_like_a_packet_hides_no_error_that_names_it(name: str) -> None:
    assert len(name) <= COMM_CHARACTERS
    line = f"NVRM: Xid (PCI:0000:53:00): 95, pid=77, name={name}, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No"
    assert topic_of(line.encode(), UNKNOWN)


@pytest.mark.parametrize(
    "packet",
    [
        "IN=eth0 OUT= MAC=0e:1d SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x00 PREC=0x00",
        "IN= OUT=lo SRC=127.0.0.1 DST=127.0.0.1 LEN=60 TOS=0x00 PREC=0x00",
        "IN=br0 OUT=eth1 PHYSIN=eth0 PHYSOUT=eth1 MAC=0e:1d SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x00 PREC=0x00",
        "IN=eth0 OUT= MACSRC=0e:1d MACDST=0e:2d MACPROTO=0800 SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x00 PREC=0x00",
        "IN=eth0 OUT= ARP HTYPE=1 PTYPE=0x0800 OPCODE=1 MACSRC=0e:1d IPSRC=10.0.0.1",
    ],
)
def test_what_a_rule_of_netfilter_says_of_a_packet_is_not_kept(packet: str) -> None:
    assert not topic_of(f"NVRM: Xid (PCI:0000:53:00): 79, {packet}".encode(), UNKNOWN)


def test_a_process_that_calls_itself_a_kernel_ends_no_boot() -> None:
    error = "NEURON_HW_ERR=DMA_ERROR nd-id=3"
    for name in ("Linux version 6", "-- Reboot", "-- Boot --"):
        records = [error, *(record.format(name) for record in OF_A_PROCESS.values())]
        assert len(hardware_errors(records)) == 1


def test_a_process_that_calls_itself_fatal_does_not_say_how_bad_an_xid_is() -> None:
    (event,) = evidence_of(
        "NVRM: Xid (PCI:0000:53:00): 145, pid=77, name=x, Fatal, y, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12"
    )
    assert isinstance(event, XidEvent)
    assert event.severity == "nonfatal"


@pytest.mark.parametrize("deed", [*ANY_LENGTH, *OF_A_PROCESS])
def test_no_check_fails_for_what_a_user_wrote(deed: str) -> None:
    texts = [text if deed in ANY_LENGTH else text[:COMM_CHARACTERS] for text in EVERY_TEXT]
    records = [(ANY_LENGTH | OF_A_PROCESS)[deed].format(text) for text in texts]
    of_user = node(*((1.0 + at, record) for at, record in enumerate(records)))
    assert [check for check in OVER_LOG if verdict(check, of_user) is Verdict.FAIL] == []


@pytest.mark.parametrize("priority", [8 + 2, 24 + 6, 80 + 3])
def test_what_a_program_writes_into_the_kernels_log_is_left_out(tmp_path: Path, priority: int) -> None:
    written = (f"{priority},{at},{at}000000,-;{text}\n" for at, text in enumerate(EVERY_TEXT, 1))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("".join(("6,0,0,-;x\n", *written)))
    collected = read(Node(str(tmp_path)))
    assert isinstance(collected, dict)
    assert collected["lines"] == []


CRASH = "import ctypes,sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0); ctypes.string_at(0)"
MAY_MOUNT = shutil.which("unshare") and not subprocess.run(["unshare", "-Urm", "true"], check=False).returncode
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/kmsg", os.R_OK) or not MAY_MOUNT,
    reason="needs root to read /dev/kmsg, and user namespaces: unshare -Urm",
)


@needs_namespaces
def test_the_running_kernel_logs_what_users_mount_and_crash_and_nothing_is_made_of_it() -> None:
    mark = f"clusterproof{os.getpid()}"
    for text in ("cannot allocate memory", "detected hard LOCKUP on cpu 3", "\nNVRM: Xid (PCI:0000:53:00): 79"):
        mount = ["mount", "-t", "tmpfs", "-o", f"{mark} {text}", "none", "/mnt"]
        subprocess.run(["unshare", "-Urm", *mount], capture_output=True, check=False)
    subprocess.run(["python3", "-c", CRASH, "EDAC MC0: 1 UE"], capture_output=True, check=False)
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    records = []
    while True:
        try:
            records.append(os.read(log, 8192).split(b";", 1)[1].decode("utf-8", "replace"))
        except BrokenPipeError:
            continue
        except BlockingIOError:
            break
    os.close(log)
    ours = [record for record in records if mark in record or record.startswith("EDAC MC0: 1 UE[")]
    assert sum(mark in record for record in ours) == 3
    events = [event for record in ours for event in evidence_of(record.replace("\\x0a", "\n"))]
    assert {type(event) for event in events} <= {Segfault}
