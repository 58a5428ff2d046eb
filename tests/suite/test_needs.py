"""What nodes are asked for: what the selected checks read, recorded for packaged checks, declared by others."""

from __future__ import annotations

import json
import textwrap
import threading
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.index import ALWAYS
from clusterproof.plugins.evaluation.needs import reads, recorded
from clusterproof.plugins.evidence.fact import IN_JOB
from clusterproof.plugins.transport.kubernetes import reporting
from tests.builders.runs import Runs

pytestmark = pytest.mark.any_user

BY_A_COMPUTED_NAME = """
    def test_swap(node):
        assert getattr(node, "kernel" + "_state")
"""
BY_A_CLASS_OF_ONES_OWN = """
    class Reader:
        def __init__(self, node):
            self.node = node

        @property
        def state(self):
            return vars(type(self.node))["kernel_state"].of(self.node)

    def test_swap(node):
        assert Reader(node).state
"""
DECLARED = """
    from clusterproof import reads

    @reads("kernel")
    def test_swap(node):
        assert node.kernel_state
"""


def collectors_asked_for(runs: Runs, tmp_path: Path, *arguments: str) -> set[str]:
    """The collectors that a run of the site's own checks over this machine asked for."""
    runs.run("--cluster", "local", f"--results={runs.results_file}", f"--record={tmp_path / 'recording'}", *arguments)
    node = next((tmp_path / "recording" / "nodes").iterdir())
    return {
        name
        for name, collector in json.loads(node.read_text())["collectors"].items()
        if collector["status"] != "not_asked"
    }


@pytest.mark.parametrize("check", [BY_A_COMPUTED_NAME, BY_A_CLASS_OF_ONES_OWN, DECLARED])
def test_a_check_of_another_author_gets_what_it_reads(runs: Runs, tmp_path: Path, check: str) -> None:
    runs.checks(test_own=check)
    collectors_asked_for(runs, tmp_path)
    assert [result.verdict for result in runs.results] == [Verdict.PASS]


def test_a_check_of_another_author_that_declares_nothing_gets_all_that_is_no_jobs(runs: Runs, tmp_path: Path) -> None:
    runs.checks(test_own=BY_A_COMPUTED_NAME)
    assert collectors_asked_for(runs, tmp_path) >= set(collector_names()) - IN_JOB


@pytest.mark.parametrize(("words", "of_a_job"), [((), set()), (("-m", "job"), IN_JOB)])
def test_device_files_are_opened_where_a_job_is_asked_and_nowhere_else(
    runs: Runs, tmp_path: Path, words: tuple[str, ...], of_a_job: set[str]
) -> None:
    runs.checks(test_own=f"import pytest\npytestmark = pytest.mark.job\n{textwrap.dedent(BY_A_COMPUTED_NAME)}")
    assert collectors_asked_for(runs, tmp_path, "-n", "1", *words) & IN_JOB == of_a_job


def test_an_agent_of_the_gate_opens_no_device_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(collectors: frozenset[str], _: ProbeOptions) -> None:
        raise LookupError(*collectors)

    monkeypatch.setattr(reporting, "program", refuse)
    with pytest.raises(LookupError) as error:
        reporting.report_for_ever(60.0, ProbeOptions(), threading.Event())
    assert set(error.value.args) & {"boot", *IN_JOB} == {"boot"}


@pytest.mark.parametrize("arguments", ["node", "node, tmp_path"])
def test_what_a_check_declares_is_all_that_nodes_are_asked_for(runs: Runs, tmp_path: Path, arguments: str) -> None:
    runs.checks(test_own=DECLARED.replace("(node)", f"({arguments})"))
    assert collectors_asked_for(runs, tmp_path) == ALWAYS | {"kernel"}


def test_a_check_of_devices_gets_the_devices_besides_what_it_declares(runs: Runs, tmp_path: Path) -> None:
    runs.checks(test_own=DECLARED.replace("(node)", "(nvme, node)"))
    assert collectors_asked_for(runs, tmp_path) >= {"kernel", "nvme"}


def test_a_slip_in_what_a_check_declares_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"^reads\('kernl'\): no collector is called so \(did you mean kernel\?\)$"):
        reads("kernl")


def test_what_every_packaged_check_of_nodes_reads_is_recorded() -> None:
    to_record = {name for name, check in all_checks().items() if not (check.is_of_run or check.is_of_pair)}
    assert to_record <= recorded().keys(), "run: scripts/generate needs"


def test_what_is_recorded_is_of_checks_and_devices_that_there_are() -> None:
    assert {name for name in recorded() if "." in name} <= all_checks().keys(), "run: scripts/generate needs"
