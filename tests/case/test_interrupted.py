"""Tracebacks that a process survives hide no other after them: each ends with its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import BROKEN_GPU, CUDA_OF_3, case_of

IGNORED = (
    "Exception ignored in: <function Loader.__del__ at 0x7f62>\nTraceback (most recent call last):\n"
    '  File "/opt/x.py", line 14, in __del__\n    self._shutdown()\n'
)
OWN = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    run()\n{exception}\n'
LOGGED = "2026-03-01 08:00:00,000 INFO loader: shard 7\n"
BEFORE = {
    "a logger's words": f"WARNING loader: Exception ignored while reading sample 3\n{LOGGED}",
    "a logger's words, of Python's": f"2026-03-01 08:00:00,000 ERROR x: Exception ignored in: reader 3\n{LOGGED}",
    "no traceback": f"Exception ignored in: <function Loader.__del__ at 0x7f62>\n{LOGGED}",
    "one that is cut": f"{IGNORED}{LOGGED}",
    "one that goes on": f'{IGNORED}{LOGGED}  File "/opt/y.py", line 9, in _shutdown\n    join()\nK: can only join\n',
    "of a rank": "".join(f"[rank3]: {line}\n" for line in f"{IGNORED}{LOGGED}".splitlines()),
}
EXCEPTIONS = {
    "ValueError: shard 7": "code",
    "torch.OutOfMemoryError: CUDA out of memory.": "resources",
    "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered": "unknown",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize(("exception", "cause"), EXCEPTIONS.items())
def test_an_exception_behind_one_that_is_ignored_is_read(
    before: str, exception: str, cause: str, tmp_path: Path
) -> None:
    case = case_of(tmp_path, {"slurm-77.out": before + OWN.format(exception=exception)})
    assert (case.verdict.cause, len(case.collected.events)) == (cause, 1)
    assert case.collected.events[0].words.endswith(exception)


def test_words_below_one_that_is_cut_are_read(tmp_path: Path) -> None:
    output = "    torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
    (event,) = case_of(tmp_path, {"slurm-77.out": IGNORED + LOGGED + LOGGED + output}).collected.events
    assert event.sign == "ecc"


@pytest.mark.parametrize("line", [LOGGED, "[rank0] step\n"])
def test_a_line_of_another_process_within_one_that_is_ignored_makes_it_no_cause(line: str, tmp_path: Path) -> None:
    frame = '  File "/opt/y.py", line 9, in _shutdown\n    join()\nAssertionError: can only join\n'
    files = {**BROKEN_GPU, "rank_3.log": IGNORED + line + frame + CUDA_OF_3}
    assert case_of(tmp_path, files).verdict.standing == "established"


TRACKED = (
    'Traceback (most recent call last):\n  File "/usr/lib/python3.10/multiprocessing/resource_tracker.py", line 121, '
    "in ensure_running\n    r, w = os.pipe()\n{exception}\n"
)


@pytest.mark.parametrize("exception", ["[Errno 24] Too many open files", "[Errno 12] Cannot allocate memory"])
def test_an_exception_that_is_not_the_resource_trackers_own_is_read(exception: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {"slurm-77.out": TRACKED.format(exception=f"OSError: {exception}")})
    assert case.verdict.cause == "resources"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("ERROR - Exit after 3 WARNINGs: RuntimeError: CUDA out of memory", "resources"),
        ("[E loader.cpp:7] after a WARNING: KeyError: 'caption'", "code"),
        ("CRITICAL: too many Warnings, Warning: KeyError: 'caption'", "code"),
        ("Exit after 3 WARNINGs: RuntimeError: CUDA out of memory", "resources"),
        ("WARNING: 3 ERRORs so far: KeyError: 'caption'", "unknown"),
    ],
)
def test_the_first_level_that_a_line_names_is_its_own(message: str, cause: str, tmp_path: Path) -> None:
    assert case_of(tmp_path, {"rank_3.log": f"2026-03-01 08:00:00,000 {message}\n"}).verdict.cause == cause
