"""Faults in exact products, a sample with a fixed seed: every fault that changes a result is found, no clean one is."""

from __future__ import annotations

import pytest

from bench.exact.simulate import is_good, main, simulate
from bench.real_runs import torch_python

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("figures", "good"),
    [
        ({"faults": 10_000, "found": 10_000, "clean": 10**6, "false": 0}, True),
        ({"faults": 10_000, "found": 9_999, "clean": 10**6, "false": 0}, True),
        ({"faults": 10_000, "found": 9_998, "clean": 10**6, "false": 0}, False),
        ({"faults": 10_000, "found": 10_000, "clean": 10**6, "false": 1}, False),
        ({"faults": 0, "found": 0, "clean": 10**6, "false": 0}, False),
    ],
)
def test_more_than_one_missed_in_ten_thousand_or_one_false_is_too_many(figures: dict[str, int], good: bool) -> None:
    assert is_good(figures) is good


def test_a_python_without_pytorch_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--torch-python", "/bin/false"])
    assert ended.value.code == 4
    assert "no PyTorch in /bin/false; expected --torch-python PATH" in capsys.readouterr().err


def test_every_fault_that_changes_a_result_is_found_and_no_clean_product_is_called_wrong() -> None:
    python = torch_python(None)
    if python is None:
        pytest.skip("no PyTorch here: apt-get install python3-torch")
    tables, figures = simulate(python, 1_000, 10_000, seed=7, device="cpu")
    assert (figures["found"], figures["false"]) == (figures["faults"], 0), tables
    assert figures["faults"] >= 1_000
    assert figures["clean"] >= 10_000
    assert figures["found_by_tolerance"] < 0.9 * figures["faults"]  # the reason for exact arithmetic
