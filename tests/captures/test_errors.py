"""What a tool says in place of its output is read: it fails what it shows, and passes nothing."""

from __future__ import annotations

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.faults.captured_fault import evaluated

NO_DRIVER = "Unable to read device information from the driver."
SAID = {
    f'FATA[0000] Failed to discover neuron devices             error="{NO_DRIVER}"': (
        "neuron.devices_answer",
        Verdict.FAIL,
        "neuron-ls says FATA[0000] Failed to discover neuron devices",
    ),
    "506 Cannot talk to daemon": ("host.clock_sync", Verdict.INCOMPLETE, "(chronyc: 506 Cannot talk to daemon)"),
    "No IB devices found": ("network.ib_count", Verdict.INCOMPLETE, "(ibv_devinfo: No IB devices found)"),
    "Failed to get IB devices list: Function not implemented": (
        "network.ib_count",
        Verdict.INCOMPLETE,
        "(ibv_devinfo: Failed to get IB devices)",
    ),
}


@pytest.mark.parametrize("said", SAID, ids=lambda said: said[:30])
def test_an_error_in_place_of_an_output_is_said_in_its_own_words(said: str) -> None:
    check, verdict, words = SAID[said]
    assert read_text(said + "\n")[1] == []
    expect(evaluated({"a.txt": said + "\n"})[check], verdict, words)


@pytest.mark.parametrize("said", SAID, ids=lambda said: said[:30])
def test_below_a_typed_command_it_is_the_same(said: str) -> None:
    check, verdict, words = SAID[said]
    expect(evaluated({"a.txt": f"# sudo the command\n$ date -u\n{said}\n"})[check], verdict, words)


@pytest.mark.parametrize("said", ["FATA[0012] error running neuron job", 'time=12:00 level=fatal msg="neuron job"'])
def test_what_a_job_logs_of_neuron_is_no_output_of_neuron_ls(said: str) -> None:
    assert "neuron_ls" not in read_text(f"step 1\n{said}\n")[0]


def test_neuron_ls_says_why_it_fails_below_another_line() -> None:
    assert "neuron_ls" in read_text(f"step 1\nFATA[0000] Failed to discover neuron devices  error={NO_DRIVER}\n")[0]


def test_an_error_hides_no_answer_of_another_tool() -> None:
    files = {"chrony": "506 Cannot talk to daemon\n", "timedatectl": "System clock synchronized: no\n"}
    expect(evaluated(files)["host.clock_sync"], Verdict.CONCERN, "the clock is not synchronised")
