"""Any text, and real captures that are cut short or altered: no crash, and no fault turns into a pass."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from clusterproof.plugins.captures.collection import FORMS, read_text
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.parsing import CaptureError, Form
from tests.builders.examples import examples
from tests.builders.samples import FOLDER, Sample, manifest, of_topic, sample

WORDS = (
    "GPU 0: H100 (UUID: GPU-a)",
    "GPU 00000000:53:00.0",
    " Link 0: 25 GB/s",
    " Link 0: Replay Errors: 3",
    "    ECC Errors",
    "        Volatile",
    "            DRAM Uncorrectable : 5",
    "==============NVSMI LOG==============",
    "Attached GPUs : 2",
    "| NVIDIA-SMI 5 Driver Version: 5 |",
    "|   0  A   On  |   00000000:83:00.0 Off |    0 |",
    "| N/A  28C  P0  77W /  700W |  0MiB / 1MiB |  0%  Default |",
    "| Processes: |",
    "index, uuid, pci.bus_id",
    "0, GPU-a, 00000000:53:00.0",
    "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id='a'>",
    "<pci><pci_bus_id>1</pci_bus_id></pci></gpu></nvidia_smi_log>",
    "GPU0 GPU1 CPU Affinity",
    "GPU0 X NV18",
    "Unable to determine the device handle for GPU 0000:53:00.0: Unknown Error",
    "$ nvidia-smi -q",
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@examples(60)
@given(text=st.text(max_size=200) | st.lists(st.sampled_from(WORDS) | st.text(max_size=30), max_size=12).map("\n".join))
def test_any_text_is_read_or_refused(form: Form, text: str) -> None:
    refused = False
    if form.recognises(text):
        try:
            raw = form.read(text)
        except CaptureError as problem:
            refused = bool(str(problem))
        else:
            assert all(isinstance(collector, str) for collector in raw)
    assert refused in (True, False)


def faulty() -> list[object]:
    """A capture of each form with a fault, and the check that finds it."""
    chosen = [
        ("nvidia-smi-q/gpud-a10-535.129-remap-pending.txt", "gpu.row_remap"),
        ("nvidia-smi-table/azure-bad_nvsmi8_output.txt", "gpu.row_remap"),
        ("nvidia-smi-q-xml/mock-gb200-lost.xml", "gpu.gpu_answers"),
    ]
    return [pytest.param(file, check, id=file) for file, check in chosen]


def verdict(text: str, check: str) -> Verdict:
    values, _ = read_text(text)
    collectors = {collector: Collected(Status.READ, value) for collector, value in values.items()}
    cluster = Cluster("altered", "capture", (Target("gpu001"),))
    node = nodes(cluster, {"gpu001": NodeEvidence("gpu001", collectors)}, "preflight")["gpu001"]
    return evaluate(node_checks()[check], node).verdict


@pytest.mark.long
@pytest.mark.parametrize(("file", "check"), faulty())
def test_a_fault_cut_off_or_taken_out_is_no_pass(file: str, check: str) -> None:
    lines = sample(file).lines
    assert verdict("\n".join(lines), check) is Verdict.FAIL
    step = max(1, len(lines) // 60)
    for end in range(1, len(lines), step):
        assert verdict("\n".join(lines[:end]), check) is not Verdict.PASS
        without = [*lines[:end], *lines[end + step :]]
        assert verdict("\n".join(without), check) is not Verdict.PASS


def all_captures() -> list[object]:
    found = [param for topic in sorted({one.topic for one in manifest()}) for param in of_topic(topic)]
    return [param for param in found if "nvidia" in str(param)] or of_topic("nvidia-smi-q")[:1]


@pytest.mark.parametrize("capture", all_captures())
@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_capture_that_was_altered_is_still_read(capture: Sample, data: st.DataObject) -> None:
    text = (FOLDER / capture.file).read_text(errors="replace")[:20_000]
    place = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 200))
    altered = text[:place] + data.draw(st.text(max_size=20)) + text[place + length :]
    values, problems = read_text(altered)
    assert isinstance(values, dict)
    assert all(isinstance(problem, str) for problem in problems)
