"""`--opt WORD` means `--opt=WORD`, also where pytest would not take the two words so.

It looks for its configuration before it knows our options: the folder of a path that exists would become the root of
the run, whose configuration and conftest.py are others. And a word that begins with a dash is an option to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from clusterproof.plugins.suite import flags, flags_of_perf


def begin_again(arguments: Sequence[str]) -> None:
    """Start the program anew with one word for each option where two would mislead pytest.

    Only where these are the words of the command line: what a program gives to `pytest.main` stays as it is.
    """
    words = list(arguments)
    data = joined(words)
    before = len(sys.orig_argv) - len(words)
    if data == words or sys.argv[1:] != words or sys.orig_argv[before:] != words:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [*sys.orig_argv[:before], *data])  # noqa: S606 - the same program


def joined(words: Sequence[str]) -> list[str]:
    """The words of a command line, an option of ours and the word behind it as one where two mislead: `--opt=WORD`."""
    groups = (*flags.GROUPS.values(), *flags_of_perf.GROUPS.values())
    valued = {option.flag: option for group in groups for option in group if option.has_value}
    data: list[str] = []
    for word in words:
        option = valued.get(data[-1]) if data and "--" not in data else None
        if option and (misleads(word) or (option.takes_dashes and word.startswith("-"))):
            data[-1] += f"={word}"
        else:
            data.append(word)
    return data


def misleads(word: str) -> bool:
    """Whether pytest would go by the folder of this word: it is a path that exists, and no file of this folder."""
    try:
        return os.path.exists(word) and not (os.path.isfile(word) and os.path.dirname(word) in ("", "."))  # noqa: PTH110, PTH113, PTH120 - Path costs every run more
    except ValueError:  # a null byte
        return False
