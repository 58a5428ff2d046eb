"""The exit code of a run: by its verdicts, by what a site makes of them, and by what cut it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.verdict import EXIT_FAILED, EXIT_INCOMPLETE, Verdict
from clusterproof.plugins.suite.stopping import INTERRUPTED, is_by_signal

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options

EXIT_UNCHECKED = int(pytest.ExitCode.NO_TESTS_COLLECTED)  # 5: no check was selected, or none of them applies
EXIT_UNWRITTEN = 11  # what `--k8s-gate` was to write could not be, or not all of it
BY_VERDICTS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def is_by_failures(session: pytest.Session, raised: BaseException | None) -> bool:
    """Whether `-x` or `--maxfail` ended the run: verdicts decide then, also where workers let pytest say otherwise."""
    is_usual = session.exitstatus in (*BY_VERDICTS, pytest.ExitCode.INTERRUPTED)
    return is_usual and bool(session.shouldfail) and not is_by_signal(raised)


def exit_code(verdicts: Counter[Verdict], option: Options, *, broken: int, is_others: bool) -> int:
    """0 nothing failed, 1 a failure, 10 nothing failed but something is incomplete; policies may change that.

    5 where no check applies: what was not checked is not fit.
    """
    if broken or verdicts[Verdict.FAIL]:
        return EXIT_FAILED
    if verdicts[Verdict.CONCERN] and option.concerns == "fail":
        return EXIT_FAILED
    if verdicts[Verdict.INCOMPLETE] and option.incomplete != "ignore":
        return EXIT_FAILED if option.incomplete == "fail" else EXIT_INCOMPLETE
    is_checked = is_others or verdicts.keys() != {Verdict.NOT_APPLICABLE}
    return 0 if is_checked else EXIT_UNCHECKED


def of_cut(code: int, *, by_failures: bool) -> int:
    """The code of a run that was cut: no success, whatever may be ignored."""
    if not by_failures:
        return INTERRUPTED
    return code if code in (EXIT_FAILED, EXIT_INCOMPLETE) else EXIT_FAILED
