"""neuron-ls's list and the kernel log of Neuron devices are read as they are, and nonsense is ignored."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN, Kept
from clusterproof.plugins.evidence.neuron.facts import Listed, hardware_errors, parse_neuron_ls
from tests.builders.examples import examples
from tests.faults.proof import verdicts_of_healthy
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.neuron import healthy_trn1, healthy_trn2

ONE_DEVICE = [{"neuron_device": 0, "bdf": "0000:00:1e.0", "connected_to": None, "nc_count": 2, "neuron_processes": []}]
SRAM = "NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-05 nd-id=0 nc-id=0 action=TERMINATE_INSTANCE"
REPAIRABLE = "NEURON_HW_ERR=HBM_REPAIRABLE_ERROR nd-id=2"
STARTED = "neuron: Neuron Driver Started with Version:2.26.5.0-667"


@examples(200)
@given(st.text(max_size=300) | st.text(alphabet='[]{}":, neuron_device01', max_size=300))
def test_no_text_breaks_neuron_ls_or_the_kernels_errors(text: str) -> None:
    parse_neuron_ls(text)
    assert hardware_errors([SRAM, text, REPAIRABLE])[-1].kind == "HBM_REPAIRABLE_ERROR"


@pytest.mark.parametrize(
    ("output", "listed"),
    [
        (json.dumps(ONE_DEVICE), (Listed(0, ()),)),
        (f'time="…" level=warning msg=x\n{json.dumps(ONE_DEVICE)}\n', (Listed(0, ()),)),
        (json.dumps({"instance": "trn2", "neuron_devices": ONE_DEVICE}), (Listed(0, ()),)),
        (json.dumps({"servers": ["u0"], "racks": [{"id": 1}], "neuron_devices": ONE_DEVICE}), (Listed(0, ()),)),
        (
            json.dumps([{"neuron_device": 3, "neuron_processes": [{"pid": 7, "command": "python3 a.py"}, {}, 5]}]),
            (Listed(3, ("python3 (pid 7)", "a (pid ?)")),),
        ),
        ("[]", ()),
        ("", None),
        ("level=fatal", None),
        ('[{"bdf": "x"}]', None),
        ('[{"neuron_device": true}]', None),
        ('[{"neuron_device": 1', None),
        ("[" * 100_000, None),
    ],
)
def test_neuron_ls_is_read_as_far_as_it_is_a_list_of_devices(output: str, listed: tuple[Listed, ...] | None) -> None:
    assert parse_neuron_ls(output) == listed


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([SRAM], ["SRAM_UNCORRECTABLE_ERROR of device 0 (TERMINATE_INSTANCE)"]),
        (["kernel: [  12.5] neuron:ndl: NEURON_HW_ERR=DMA_ERROR"], ["DMA_ERROR"]),
        ([REPAIRABLE, SRAM, STARTED], ["SRAM_UNCORRECTABLE_ERROR of device 0 (TERMINATE_INSTANCE)"]),
        ([STARTED, REPAIRABLE], ["HBM_REPAIRABLE_ERROR of device 2"]),
        ([SRAM, "Linux version 6.8.0-1021-aws (buildd@lcy02)"], []),
        ([f"health[9]: saw {SRAM}"], []),
        (["NEURON_HW_ERR=", "NEURON_HW_ERR=lower", "neuron: no error"], []),
    ],
)
def test_hardware_errors_are_those_that_stand(log: list[str], words: list[str]) -> None:
    assert [error.description for error in hardware_errors(log)] == words


@pytest.mark.parametrize("line", [SRAM, REPAIRABLE, STARTED])
def test_the_probe_keeps_what_the_kernel_says_of_neuron_devices(line: str) -> None:
    kept = Kept().of([(1.0, line.encode(), UNKNOWN)])
    assert [entry[1] for entry in kept["lines"]] == [line]  # type: ignore[attr-defined]


@needs_nodes
@pytest.mark.parametrize("image", [healthy_trn1, healthy_trn2])
def test_a_healthy_node_with_trainium_has_no_fault(image: Callable[[], NodeImage]) -> None:
    verdicts = verdicts_of_healthy(image)
    bad = {name: verdict for name, verdict in verdicts.items() if verdict in (Verdict.FAIL, Verdict.CONCERN)}
    assert bad == {}
    ours = {name for name in verdicts if name.startswith(("storage.", "neuron.")) and name != "neuron.nccom"}
    not_passed = {name: verdicts[name] for name in ours if verdicts[name] is not Verdict.PASS}
    assert not_passed == {"storage.lustre_striping": Verdict.NOT_APPLICABLE}  # no policy names a folder
