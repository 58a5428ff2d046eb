"""Who printed a log line, from the prefixes of launchers and log collectors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from clusterproof.plugins.core.record import record

MAX_LABELS = 5  # of one line
_LABEL = re.compile(
    r"\s{0,4}(?:"
    # journalctl -o short and short-iso, whose host requires a time before it: a program may print `Epoch train[12]: `
    r"(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}|[0-9-]{10}T[0-9:]{8}(?:\.[0-9]{6})?[+-][0-9]{2}:?[0-9]{2}) "
    r"(?P<host>[\w.-]{1,253}) [\w.@/-]{1,60}\[[0-9]{1,10}\]: "
    # kubectl and docker logs --timestamps, and containerd's files
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,]{8,20}(?:Z|[+-][0-9]{2}:?[0-9]{2}) (?:std(?:out|err) [FP] )?"
    r"|\[pod/(?P<pod>[a-z0-9.-]{1,253}/[a-z0-9-]{1,63})\] "  # kubectl logs --prefix
    # docker compose, which numbers its containers and aligns them with two spaces; SageMaker: algo-1-abcde
    r"|(?P<service>[a-z0-9][a-z0-9._-]{0,250}[_-][0-9]{1,4}(?:-[a-z0-9]{5})?) {2,20}\| "
    r"|\((?:(?P<worker>\w{0,40}Worker\w{0,40} pid=[0-9]{1,10}(?:, ip=[0-9a-f.:]{1,45})?)|[^()]{1,80})\) "  # Ray
    r"|\[[0-9]{1,10},(?:mpirank:)?(?P<mpi>[0-9]{1,7})(?:,[\w-]{1,60})?\]<std(?:out|err)>: ?"  # mpirun, SageMaker
    r"|(?P<task>[0-9]{1,7}):(?=[ \[])"  # srun -l
    r"|\[(?:rank(?P<rank>[0-9]{1,7})|default(?P<local>[0-9]{1,7}))\]:"  # torchrun
    r")"
)
_ALIGNED = re.compile(r"(?P<service>(?=[A-Za-z._-]{0,250}[0-9])[A-Za-z0-9][A-Za-z0-9._-]{0,250}) {2,250}(?=\| )")
_OF_TORCHRUN = re.compile(r"\[(?:rank(?P<rank>[0-9]{1,7})|default(?P<local>[0-9]{1,7}))\]:")  # after an unknown prefix
MAX_BEFORE = 300  # characters
_PLACES = ("pod", "service", "host", "worker")  # which ranks may share
_OF_FILE = re.compile(r"rank[-_ ]?([0-9]{1,7})(?![0-9])")  # rank7.log, rank_7/out.log
_ATTEMPT = "attempt_"  # the folder in torchrun's --log-dir with a subfolder per rank


@record
class Printer:
    """The printer of a line: its rank, if known, and a description if the line shows something else."""

    rank: int
    words: str = ""
    is_unnamed: bool = False  # whether the number is of a task or on a node, and perhaps not the rank's


def printer(line: str, of_file: int, bar: int = 0) -> Printer:
    """The printer of a line, from its prefixes; else the file's rank. `bar` is from `bar_of` its file.

    srun tasks and torchrun's local ranks only equal ranks with one task per node, or one node: this is unknown.
    """
    values, _ = labels(line, bar)
    rank, local, task = values.get("rank", values.get("mpi")), values.get("local"), values.get("task")
    parts = [] if rank else [values[kind] for kind in _PLACES if kind in values]
    parts += [f"task {int(task)}"] if task else []
    if rank and task:
        parts.append(f"rank {int(rank)}")
    elif local and not rank:
        parts.append(f"local rank {int(local)}")
    is_unnamed = not rank and bool(local or task or (parts and not of_file))
    return Printer(int(rank or local or task or of_file), ", ".join(parts), is_unnamed)


def bar_of(head: str) -> int:
    """The column of docker compose's bar after container names, from a file's first lines; 0 if there is none.

    Containers may have any name (`container_name`), and programs print columns too: most lines must be aligned, and a
    name must reappear after another.
    """
    lines = head.split("\n")
    aligned = [match for line in lines if (match := _ALIGNED.match(line))]
    bar, count = Counter(match.end() for match in aligned).most_common(1)[0] if aligned else (0, 0)
    names = [name for name, _ in groupby(match["service"] for match in aligned if match.end() == bar)]
    return bar if 2 * count > len(lines) and len(names) > len(set(names)) > 1 else 0


def labels(line: str, bar: int = 0) -> tuple[Mapping[str, str], int]:
    """The prefixes of a line by kind, and where they end."""
    values: dict[str, str] = {}
    end = 0
    if bar and line.startswith("| ", bar) and (label := _ALIGNED.match(line)) and label.end() == bar:
        values, end = label.groupdict(), bar + 2
    for _ in range(MAX_LABELS):
        label = _LABEL.match(line, end)
        if not label:
            break
        values |= {kind: text for kind, text in label.groupdict().items() if text}
        end = label.end()
    if not values.keys() & {"rank", "local", "mpi"} and (label := _OF_TORCHRUN.search(line, end, end + MAX_BEFORE)):
        values |= {kind: text for kind, text in label.groupdict().items() if text}
        end = label.end()
    return values, end


def rank_of_file(path: Path) -> int | None:
    """The rank in a file's name or its folder's; None if there is none."""
    for name in (path.name, path.parent.name):
        if named := _OF_FILE.match(name):
            return int(named[1])
    number = path.parent.name
    is_of_torchrun = path.parent.parent.name.startswith(_ATTEMPT) and number.isascii() and number.isdecimal()
    return int(number[:7]) if is_of_torchrun else None
