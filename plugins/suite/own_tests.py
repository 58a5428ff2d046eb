"""A site's own checks that `clusterproof check X FILE…` names: where they are rooted, and what they may import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

PACKAGE = Path(__file__).resolve().parents[2]
_VALUED = ("-c", "-k", "-m", "-n", "-o", "-p", "-W")  # of pytest; ours are one word with theirs where that misleads


def of_own_tests(arguments: Sequence[str]) -> list[str]:
    """The options of pytest for them: files are named as seen from here, and import the modules beside them.

    Where the packaged checks run as well, or alone, the package is the root.
    """
    named = list(_named(arguments))
    if not named or "--pyargs" in arguments or any(PACKAGE in (path, *path.parents) for path in named):
        return [f"--rootdir={PACKAGE}"]
    folders = dict.fromkeys(str(path if path.is_dir() else path.parent) for path in named)
    return [f"--rootdir={Path.cwd()}", "-o", f"pythonpath={' '.join(map(quote, folders))}"]


def _named(arguments: Sequence[str]) -> Iterator[Path]:
    """The files and folders of tests on a command line."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        path = Path(word.partition("::")[0])
        if before not in _VALUED and not word.startswith("-") and (path.suffix == ".py" or path.is_dir()):
            yield path.resolve()
