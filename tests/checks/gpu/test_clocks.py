"""GPU clocks, temperature and utilization: a GPU that is throttled, and one that is idle beside busy ones."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.checks.gpu.given import GPU, UNKNOWN, UNSUPPORTED, beside, evaluated


def moments(at_s: tuple[object, object] = (10.0, 10.5), **counters: tuple[object, object]) -> list[dict[str, Any]]:
    """A throttled GPU's report at two moments; `f252`: field 252's counter at each."""
    return [
        {"at_s": at_s[n], "counters_ns": {name[1:]: counted[n] for name, counted in counters.items()}} for n in (0, 1)
    ]


@pytest.mark.parametrize(
    ("reasons", "slowdown", "verdict"),
    [
        (0x40, moments(f252=(7, 500_000_007)), Verdict.FAIL),
        (0x40, moments(f252=(7, 250_000_007)), Verdict.FAIL),
        (0x40, moments(f252=(7, 249_000_007)), Verdict.CONCERN),
        (0x40, moments(f75=(7, 500_000_007), f252=(UNSUPPORTED, UNSUPPORTED)), Verdict.FAIL),
        (0x40, moments(f270=(7, 500_000_007)), Verdict.FAIL),
        (0x40, moments(f253=(7, 500_000_007)), Verdict.CONCERN),  # by the power brake
        (0x80, moments(f253=(7, 500_000_007)), Verdict.FAIL),
        (0x80, moments(f271=(7, 500_000_007)), Verdict.FAIL),
        (0x80, moments(f75=(7, 500_000_007), f270=(7, 500_000_007)), Verdict.CONCERN),
        (0x08, moments(f271=(7, 500_000_007)), Verdict.FAIL),
        (0x20, moments(f75=(7, 500_000_007)), Verdict.CONCERN),  # by software
        (0x04, moments(f75=(7, 500_000_007)), Verdict.PASS),  # the power cap is normal
        (0x01, moments(f252=(7, 500_000_007)), Verdict.PASS),
        (0x40, moments(f252=(500_000_007, 7)), Verdict.CONCERN),
        (0x40, moments(f252=(True, "7")), Verdict.CONCERN),
        (0x40, moments((10.5, 10.5), f252=(7, 500_000_007)), Verdict.CONCERN),
        (0x40, moments((None, "now"), f252=(7, 500_000_007)), Verdict.CONCERN),
        (0x40, moments(f252=(7, 500_000_007))[:1], Verdict.CONCERN),
        (0x40, [{"at_s": 1, "counters_ns": UNKNOWN}] * 2, Verdict.CONCERN),
        (0x40, UNKNOWN, Verdict.CONCERN),
        (0x40, None, Verdict.CONCERN),  # a capture, or an older recording
    ],
)
def test_only_a_slowdown_whose_time_runs_fails(reasons: int, slowdown: object, verdict: Verdict) -> None:
    gpu = {**GPU, "clocks_event_reasons": reasons, "slowdown": slowdown}
    assert evaluated("gpu.no_throttle", gpus=[gpu]).verdict is verdict


@pytest.mark.parametrize(
    ("reasons", "verdict", "message"),
    [
        (
            0,
            Verdict.CONCERN,
            "GPU 0: a clock of 345 MHz while 99 % busy, and no reason for it; expected about 1980 MHz",
        ),
        (0x04, Verdict.PASS, ""),  # the power cap
        (
            UNKNOWN,
            Verdict.INCOMPLETE,
            "concern: GPU 0: a clock of 345 MHz while 99 % busy, and its reason was not read",
        ),
    ],
)
def test_a_busy_gpu_with_a_slow_clock_is_named(reasons: object, verdict: Verdict, message: str) -> None:
    busy = {"utilization_percent": 99, "clocks_event_reasons": reasons}
    gpus = beside(*({**busy, "clock_mhz": 1980 if number else 345} for number in range(4)))
    result = evaluated("gpu.no_throttle", gpus=gpus)
    assert (result.verdict, message in result.message) == (verdict, True), result.message


IDLE = {"utilization_percent": 0, "processes": [], "memory_used_mib": 0, "temperature_margin_c": 40}
BUSY = {"utilization_percent": 99}
SOMEBODY = {"processes": [{"pid": 1, "memory_mib": 900, "name": "python3", "cgroup": "/slurm/uid_1/job_9/step_0"}]}


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        (beside(IDLE, IDLE), Verdict.PASS),
        (beside(IDLE | BUSY, IDLE), Verdict.CONCERN),
        (beside(IDLE | {"utilization_percent": 49}, IDLE), Verdict.PASS),  # just ended, and still reported
        (beside(IDLE | BUSY, IDLE | BUSY), Verdict.PASS),  # a container may hide everyone's processes
        (beside(IDLE | BUSY, IDLE | SOMEBODY), Verdict.CONCERN),  # GPU 1 is in use
        (beside(IDLE | {"utilization_percent": UNKNOWN}, IDLE), Verdict.PASS),
    ],
)
def test_a_gpu_that_computes_for_nobody_is_in_use(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.no_leftover_processes", gpus=gpus).verdict is verdict


def warm(*celsius: object) -> list[dict[str, Any]]:
    return [IDLE | {"temperature_c": value} for value in celsius]


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        (beside(*warm(30, 31, 32, 33)), Verdict.PASS),
        (beside(*warm(52, 31, 32, 33)), Verdict.PASS),
        (beside(*warm(53, 31, 32, 33)), Verdict.CONCERN),
        (
            beside(*(warm(53)[0] | {"name": "T1000"}, *(gpu | {"name": "A100"} for gpu in warm(31, 32, 33)))),
            Verdict.PASS,
        ),
        (beside(*(warm(53)[0] | {"name": "A100"}, *(gpu | {"name": "A100"} for gpu in warm(31, 32)))), Verdict.CONCERN),
        (beside(*warm(90, 31)), Verdict.PASS),  # of two, neither is known to be the odd one
        (beside(*warm(90, UNKNOWN, 31)), Verdict.PASS),
        (beside(warm(70)[0] | SOMEBODY, *warm(31, 32, 33)), Verdict.PASS),  # it is working
        (beside(warm(70)[0] | BUSY, *warm(31, 32, 33)), Verdict.PASS),
        (beside(*(gpu | {"temperature_margin_c": UNSUPPORTED} for gpu in warm(53, 31, 32, 33))), Verdict.CONCERN),
        (beside(warm(53)[0] | {"temperature_margin_c": UNSUPPORTED}, *warm(31, 32, 33)), Verdict.CONCERN),
        (beside(warm(53)[0] | {"temperature_margin_c": -1}, *warm(31, 32, 33)), Verdict.FAIL),
    ],
)
def test_an_idle_gpu_is_as_cool_as_the_others(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.temperature", gpus=gpus).verdict is verdict
