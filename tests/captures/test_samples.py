"""Real captures in every format except nvidia-smi's: each is recognised, and evaluated correctly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.captures.text import plain
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.aws import parse as ec2
from clusterproof.plugins.evidence.host import parse as host
from clusterproof.plugins.evidence.host import parse_hardware as hardware
from clusterproof.plugins.evidence.host import parse_hardware_errors as hardware_errors
from clusterproof.plugins.evidence.host import parse_memory as memory
from clusterproof.plugins.evidence.host import parse_system as system
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.kernel_log import parse_journal as journal
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.network import parse as network
from clusterproof.plugins.evidence.network import parse_rdma as rdma
from clusterproof.plugins.evidence.neuron import parse as neuron
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.parsing import CaptureError, Form
from clusterproof.plugins.evidence.pci import parse as pci
from clusterproof.plugins.evidence.perf import parse_dcgm as dcgmi
from clusterproof.plugins.evidence.perf import parse_dcgm_watches as dcgm_watches
from clusterproof.plugins.evidence.perf import parse_nccl as nccl_tests
from clusterproof.plugins.evidence.perf import parse_nccom as nccom
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.software import parse as versions
from clusterproof.plugins.evidence.storage import parse as storage
from clusterproof.plugins.evidence.storage import parse_disks as disks
from clusterproof.plugins.evidence.storage import parse_findmnt as findmnt
from clusterproof.plugins.evidence.storage import parse_lsblk as lsblk
from clusterproof.plugins.evidence.storage import parse_mounts as mounts
from clusterproof.plugins.kubernetes import parse as kubernetes
from tests.builders.examples import examples
from tests.builders.samples import Sample, manifest, of_topic
from tests.captures.any_text import WORDS, understood

FAMILIES = {
    "dcgmi": (*dcgmi.FORMS, *dcgm_watches.FORMS),
    "fi_info": (*network.FORMS, *ec2.FORMS),
    "host": (
        *hardware.FORMS,
        *memory.FORMS,
        *hardware_errors.FORMS,
        *host.FORMS,
        *storage.FORMS,
        *mounts.FORMS,
        *findmnt.FORMS,
        *disks.FORMS,
        *lsblk.FORMS,
        *system.FORMS,
    ),
    "ibstat": (*rdma.FORMS, *network.FORMS),
    "ibv": rdma.FORMS,
    "kernel-log": (*kernel_log.FORMS, *journal.FORMS, *ec2.FORMS),
    "lscpu": hardware.FORMS,
    "lspci": pci.FORMS,
    "lustre": storage.FORMS,
    "nccl-tests": nccl_tests.FORMS,
    "nccom-test": nccom.FORMS,
    "rdma": rdma.FORMS,
    "slurm": slurm.FORMS,
}
OTHERS = (storage.FORMS, ec2.FORMS, neuron.FORMS, versions.FORMS, kubernetes.FORMS)
FORMS = tuple(dict.fromkeys(form for forms in (*FAMILIES.values(), *OTHERS) for form in forms))
# Captures whose content no collector holds, by a part of their names.
OF_NO_COLLECTOR = {
    "diskstats": "disk counters since boot",
    "default_governor": "a kernel module's default",
    "eks-default": "a word without its file's name",
    "iostat": "averages of disk traffic",
    "loadavg": "the load",
    "parens-in-filesystem": "macOS",
    "fabric-manager-0": "fabric manager's own log, of many boots: the kernel log has the same SXids of this one",
    "fm-log-lines": "fabric manager's own log",
    "imbue-dmesg-whitelist": "Python",
    "insights-dmesg-L4": "lines without times that name no driver: nothing says that the kernel wrote them",
    "mount-fail": "the error of a mount command",
    "ibnetdiscover": "the fabric's map",
    "ibswinfo": "a switch",
    "perfquery": "counters of a port that is named by its LID",
    "sacct": "jobs",
    "squeue": "jobs",
    "sdiag": "slurmctld",
    "scheduler": "slurmctld",
    "scontrol-output": "partitions",
    "show-config": "Slurm's configuration",
    "slurm.conf": "Slurm's configuration",
    "slurm-3.conf": "Slurm's configuration",
    "schedmd-topology-": "the switches",
    "topology.yaml": "the switches",
    "topograph-topology": "the switches",
    "slinky": "the switches",
    "provenance": "another project's notes",
    "reservations": "reservations",
    "srun-no-config": "the error of srun",
    "sinfo_gpus_idle": "sinfo in a form of its user's own",
    "sinfo_fallback": "sinfo in a form of its user's own",
    "gpus_snapshot": "sinfo in a form of its user's own",
    "node_detail": "sinfo in a form of its user's own",
}
TYPES = {
    "awsome-p4de": "p4de.24xlarge",
    "eks-g4dn": "g4dn.8xlarge",
    "eks-p4d": "p4d.24xlarge",
    "gcm-nvlink": "p4d.24xlarge",
    "trn1": "trn1.32xlarge",
}
# Findings about captures that are called healthy, and why they are right.
FOUND_IN_HEALTHY = {
    ("insights-mount-L39.txt", "storage.mount_options"): "an office machine's NFS is mounted soft",
    ("jc-centos-7.7-free-h.txt", "host.swap"): "a virtual machine has swap, a training node has none",
    ("jc-centos-7.7-free.txt", "host.swap"): "as above",
    ("jc-linux-proc-meminfo.txt", "host.swap"): "as above",
    ("jc-ubuntu-18.04-free-h.txt", "host.swap"): "as above",
    ("scky-scontrol_nodes.txt", "control_plane.slurm_nodes"): "two of its nodes are drained for maintenance",
}
# Captures that are called faulty, and why no check finds more than nothing or incomplete.
NOT_FOUND_IN_FAULTY = {
    "gpud-ibstat.39.0.a100.failed.ibpanic.exit-255.0.txt": "ibstat stopped: what it did not read is incomplete",
    "gpud-ibstat.47.0.h100.some.down.0.txt": "the ports that are down are Disabled: somebody has switched them off",
    "gpud-fabric-manager-0.txt": OF_NO_COLLECTOR["fabric-manager-0"],
}
FINDINGS = (Verdict.FAIL, Verdict.CONCERN)


def samples(topic: str = "") -> list[Sample]:
    return [sample for sample in manifest() if sample.topic in FAMILIES and topic in ("", sample.topic)]


def reason(name: str) -> str:
    return next((why for part, why in OF_NO_COLLECTOR.items() if part in name), "")


def recognised(text: str, forms: tuple[Form, ...] = FORMS) -> list[str]:
    return [form.name for form in forms if form.recognises(text)]


def evaluated(sample: Sample) -> list[Result]:
    """The result of every check on each node in a capture."""
    raw, _ = read_text(plain(sample.text))
    slurm_nodes = raw.get("slurm_node")
    names = [entry["name"] for entry in slurm_nodes["nodes"]] if isinstance(slurm_nodes, dict) else ["node"]
    collectors = {collector: Collected(Status.READ, value) for collector, value in raw.items()}
    kind = next((kind for part, kind in TYPES.items() if sample.name.startswith(part)), "")
    nodes = [Node(Target(name, instance_type=kind), NodeEvidence(name, collectors)) for name in names]
    return [evaluate(check, node) for node in nodes for check in node_checks().values()]


def parameters(chosen: str = "") -> list[object]:
    entries = [
        entry
        for topic in FAMILIES
        for entry in of_topic(topic, lambda sample: not chosen or bool(getattr(sample, chosen)))
    ]
    return entries if manifest() else entries[:1]


@pytest.mark.parametrize("sample", parameters())
def test_every_capture_is_recognised_as_what_it_is_or_says_nothing_of_a_node(sample: Sample) -> None:
    text = plain(sample.text)
    own = recognised(text, FAMILIES[sample.topic])
    assert bool(own) != bool(reason(sample.name)), (own, reason(sample.name))
    assert set(recognised(text)) <= {form.name for form in FAMILIES[sample.topic]}


@pytest.mark.long
@pytest.mark.parametrize("sample", parameters())
def test_no_capture_breaks_a_check(sample: Sample) -> None:
    assert [result.message for result in evaluated(sample) if "the check itself broke" in result.message] == []


def findings_in(sample: Sample) -> list[Result]:
    """Findings in a capture, including those beside missing facts."""
    return [finding for result in evaluated(sample) for finding in result.by_verdict if finding.verdict in FINDINGS]


@pytest.mark.long
@pytest.mark.parametrize("sample", parameters("is_healthy"))
def test_a_healthy_capture_has_no_finding(sample: Sample) -> None:
    by_check = {result.check: result.message for result in findings_in(sample)}
    assert set(by_check) == {check for name, check in FOUND_IN_HEALTHY if name == sample.name}, by_check


@pytest.mark.parametrize("sample", parameters("is_faulty"))
def test_a_faulty_capture_has_a_finding(sample: Sample) -> None:
    checks = [result.check for result in findings_in(sample)]
    assert bool(checks) != (sample.name in NOT_FOUND_IN_FAULTY)


def xids(lines: Iterable[facts.Line]) -> Counter[int]:
    """How many lines report each Xid, including lines left out."""
    codes: Counter[int] = Counter()
    for event in facts.parse(lines):
        if isinstance(event, XidEvent):
            codes[event.code] += event.lines
    return codes


OF_AWS = ("hyperpod-deep-health-check-log.txt",)  # no kernel wrote it
NOT_OF_ONE_LOG = (  # lines from source code and tables; no kernel writes some of them, and none has a time
    "datadog-xid-formats.txt",
    "dcgm-kmsg-tests.txt",
    "nvidia-driver-source-xid-forms.txt",
    "nvsentinel-xid-handler.txt",
)


@pytest.mark.parametrize("sample", of_topic("kernel-log", lambda sample: sample.name.endswith(NOT_OF_ONE_LOG)))
def test_lines_without_times_among_others_show_no_records(sample: Sample) -> None:
    with pytest.raises(CaptureError, match="do not show where a record begins"):
        kernel_log.read(plain(sample.text))


@pytest.mark.parametrize(
    "sample",
    of_topic(
        "kernel-log", lambda sample: not (reason(sample.name) or sample.name.endswith((*NOT_OF_ONE_LOG, *OF_AWS)))
    ),
)
def test_a_capture_of_the_kernel_log_loses_no_xid(sample: Sample) -> None:
    raw: Any = kernel_log.read(plain(sample.text))
    assert xids(facts.lines(raw["kernel_log"]["lines"])) == xids((None, line) for line in sample.lines)


# Captures with damage


@pytest.mark.skipif(not manifest(), reason="no captures")
@pytest.mark.parametrize("topic", FAMILIES)
@given(data=st.data())
@examples(80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_capture_with_damage_makes_a_form_raise_nothing_but_its_own_error(topic: str, data: st.DataObject) -> None:
    text = plain(data.draw(st.sampled_from(samples(topic))).text)[:20_000]
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 200))
        inside = data.draw(st.text(max_size=6) | WORDS)
        text = text[:begin] + inside + text[begin + length :]
    for form in FORMS:
        understood(form, text)
