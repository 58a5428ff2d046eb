"""Each line of the kernel log has the verdict of its form, and none that a user can have written fails a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.node import Node
from tests.evidence.kernel_log.known_lines import KNOWN_LINES, KnownLine
from tests.evidence.kernel_log.logged import node, result, verdict

OF_NEURON, OF_MODULES = "neuron.no_hw_error", "gpu.peermem"  # which need more than the log
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
    before = [one.text for name in form.after[:1] for one in KNOWN_LINES if one.form == name]
    times = int(PACKAGED.threshold(form.rate)) * 5 if form.rate and not form.cleared_by else 1
    if form.check and form.verdict in ("fail", "concern") and not form.event:
        expected = Verdict.CONCERN if form.verdict == "concern" or form.needs else Verdict.FAIL
        of = logging(*before, *[line.text] * times)
        said = result(form.check, with_neuron(of) if form.check == OF_NEURON else of)
        assert said.verdict is expected or form.check == OF_MODULES
        assert expected in {one.verdict for one in said.by_verdict}
    elif not form.check:
        assert {verdict(check, logging(line.text)) for check in OVER_THE_LOG} == {Verdict.PASS}
