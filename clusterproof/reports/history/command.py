"""`clusterproof history`: shows a cluster's history as plain text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterproof.plugins.core.message import listed, printable
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.core.strict import nearest
from clusterproof.reports.history import FILE, HistoryError
from clusterproof.reports.history.past import clusters, read_past
from clusterproof.reports.history.store import default_path, require_own_history
from clusterproof.reports.history.words import COLUMNS, MAX_ROWS, page
from clusterproof.reports.run_folder import RUNS

EXIT_UNREADABLE = 4  # as pytest's for a bad command line
_MAX_RUNS = 50
_NAMES = f"{', '.join(map(repr, COLUMNS[:-1]))} or {COLUMNS[-1]!r}"


def history(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what to print. Raises SystemExit where argparse does."""
    option = parser().parse_args(arguments)
    try:
        if option.sort and option.sort not in COLUMNS:
            near = nearest(option.sort, COLUMNS)
            raise HistoryError(f"--sort {option.sort!r:.60}: no table has this column{near}; expected {_NAMES}")
        path = Path(option.history) if option.history else find_history(option.cluster)
        if not option.history:
            require_own_history(path)
        return 0, "\n".join(_page(path, option)) + "\n"
    except HistoryError as problem:
        return EXIT_UNREADABLE, f"clusterproof history: {problem}\n"


def find_history(cluster: str, runs: Path = Path(RUNS)) -> Path:
    """The only history next to the reports. Raises HistoryError."""
    paths = sorted(runs.glob(f"*/{FILE}"))
    path = default_path(cluster, runs)
    if cluster and paths and path not in paths:
        near = nearest(path.parent.name, [history.parent.name for history in paths])
        known = listed(history.parent.name for history in paths)
        raise HistoryError(f"no history of {cluster!r:.80} under {runs}{near}; found only {known}")
    if cluster or len(paths) == 1:
        return path if cluster else paths[0]
    problem = f"several histories under {runs}: {listed(map(str, paths))}" if paths else f"no history under {runs}"
    raise HistoryError(f"{problem}; expected --history FILE" + (" or --cluster NAME" if paths else ""))


def _page(path: Path, option: argparse.Namespace) -> Iterator[str]:
    known = clusters(path)
    cluster = option.cluster or (known[0] if known else "")
    if cluster not in known:
        expected = f"; expected one of {listed(known)}" if known else ": it has no run"
        raise HistoryError(f"{path} has no cluster {cluster!r}{expected}")
    if len(known) > 1 and not option.cluster:
        others = listed(map(printable, known[1:]))
        yield f"the newest of {len(known)} clusters; --cluster NAME shows another: {others}"
    yield from page(read_past(path, cluster, option.runs), option.sort, 0 if option.all else MAX_ROWS)


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof history`."""
    line = OneLineParser(
        prog="clusterproof history",
        description="What is new, what flaps, which hardware fails again, and how measurements move.",
    )
    line.add_argument("--history", metavar="FILE", help=f"the file that --history wrote (default: runs/*/{FILE})")
    line.add_argument("--cluster", metavar="NAME", default="", help="the cluster, if the file has several")
    line.add_argument(
        "--runs", metavar="N", type=_count, default=_MAX_RUNS, help="how many runs to look at (default 50)"
    )
    line.add_argument("--sort", metavar="COLUMN", default="", help="sort tables by a column: nodes, check, runs, …")
    line.add_argument("--all", action="store_true", help=f"all rows, not the first {MAX_ROWS} of each table")
    return line


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 7):
        raise argparse.ArgumentTypeError(f"{text!r:.80}; expected from 1 to 1000000")
    number = int(text)
    if not 1 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{number}; expected from 1 to 1000000")
    return number
