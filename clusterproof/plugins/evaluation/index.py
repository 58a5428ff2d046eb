"""The index of the packaged checks, `checks.json`, read without importing them; running this file makes it.

It is ignored if the checks, or the facts that they read, have changed since it was made.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module

from clusterproof.plugins.core.marks import Mark
from clusterproof.plugins.core.record import names_of

ALWAYS = frozenset({"boot", "platform"})  # reported by every node, whatever is checked
TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

    from clusterproof.plugins.evaluation.check import Check

    Entry = Mapping[str, Any]

PACKAGE = os.path.realpath(f"{__file__}/../../..")
FILE = f"{PACKAGE}/plugins/evaluation/checks.json"
MADE_OF = ("checks", "plugins/evidence")  # folders: the checks, and the code that determines which collectors they need
ON_FUNCTION = ("by_hand", "remedied_by", "over_ssm")  # the parts of a route that are not text
NODE = "node"  # the subsystem whose checks come first
INSTALLED_S = 60.0  # files written this soon after the index were installed with it


class Stale(Exception):  # noqa: N818 - an outcome: the index is to be made again
    """The index does not match the checks."""


def read_index(file: str | os.PathLike[str] = FILE, occasions: Collection[str] = ()) -> dict[str, Entry]:
    """The entry of each packaged check, or of those with one of these marks, by id. Raises Stale."""
    quoted = [b'"%s"' % occasion.encode() for occasion in occasions]
    try:
        with open(file, "rb") as opened:
            begin, *lines, end = opened.read().strip().split(b"\n")
        made = json.loads(begin + end)
        # A prolog needs few of the lines.
        chosen = (line.rstrip(b",") for line in lines if not quoted or any(word in line for word in quoted))
        entries: dict[str, Entry] = json.loads(b"{%s}" % b",".join(chosen))
    except (OSError, ValueError):
        raise Stale(f"{file} cannot be read") from None
    if not _is_untouched(made.get("outline"), file) and made.get("of") != signature():
        raise Stale(f"{os.path.basename(file)} is not of the checks that lie beside it")
    return of_occasions(entries, occasions) if occasions else entries


def make_index() -> dict[str, Entry]:
    """Make the index by importing every check: takes some tenths of a second."""
    from clusterproof.plugins.evaluation.all_checks import all_checks, marks_on_check, occasions
    from clusterproof.plugins.evaluation.routing import Route

    checks = all_checks()
    order = sorted(checks, key=lambda name: checks[name].route.subsystem != NODE)  # the order of a pytest run
    return {
        name: {
            "module": checks[name].function.__module__,
            "function": checks[name].function.__name__,
            "subject": checks[name].subject,
            "wants_owner": checks[name].wants_owner,
            "line": checks[name].line,
            "occasions": occasions(checks[name]),
            "marks": [[mark.name, *mark.args] for mark in marks_on_check(checks[name])],
            "collectors": sorted(checks[name].collectors),
            "route": {key: getattr(checks[name].route, key) for key in names_of(Route) if key not in ON_FUNCTION},
        }
        for name in order
    }


def of_occasions(index: Mapping[str, Entry], occasions: Collection[str]) -> dict[str, Entry]:
    """The entries of the checks that have one of these marks."""
    return {name: entry for name, entry in index.items() if not set(occasions).isdisjoint(entry["occasions"])}


def collectors_of(entries: Iterable[Entry]) -> frozenset[str]:
    """The node collectors that they need."""
    return frozenset(collector for entry in entries for collector in entry["collectors"])


def marks_of(entry: Entry) -> list[Mark]:
    """The marks of its function, then those of its module."""
    return [Mark(name, tuple(args)) for name, *args in entry["marks"]]


def read_check(entry: Entry, path: str) -> Check:
    """A check from its entry, without importing its file at `path`: it can be described but not called."""
    from clusterproof.plugins.evaluation.check import Check
    from clusterproof.plugins.evaluation.needs import unloaded
    from clusterproof.plugins.evaluation.routing import Route

    return Check(unloaded, entry["subject"], entry["wants_owner"], Route(**entry["route"]), path, entry["line"])


def load(entry: Entry) -> Check:
    """The check of an entry; its file is imported."""
    from clusterproof.plugins.evaluation.check import Check
    from clusterproof.plugins.evaluation.routing import Route

    module = import_module(entry["module"])
    function = getattr(module, entry["function"])
    of_function: dict[str, Any] = {key: getattr(function, f"__{key}__", None) for key in ON_FUNCTION}
    about = Route(**entry["route"], **of_function)
    return Check(function, entry["subject"], entry["wants_owner"], about, str(module.__file__), entry["line"])


def signature() -> int:
    """A number that changes with the contents of the files that the index is made from."""
    checksum = 0
    for folder in MADE_OF:
        for entry in sorted(_files(f"{PACKAGE}/{folder}"), key=lambda entry: entry.path):
            with open(entry.path, "rb") as file:
                checksum = zlib.crc32(file.read(), zlib.crc32(entry.name.encode(), checksum))
    return checksum


def outline() -> tuple[int, float]:
    """A number that changes with their names and sizes, and the time of the last change (s since 1970)."""
    files = [(entry.name, entry.stat()) for folder in MADE_OF for entry in _files(f"{PACKAGE}/{folder}")]
    names = sorted(f"{name} {stat.st_size}" for name, stat in files)
    return zlib.crc32("\n".join(names).encode()), max((stat.st_mtime for _, stat in files), default=0.0)


def _is_untouched(known: object, file: str | os.PathLike[str]) -> bool:
    """Whether they look unchanged since the index was written, so that they need not be read."""
    names, last = outline()
    return names == known and last <= os.stat(file).st_mtime + INSTALLED_S


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)


def written() -> str:
    """The text of the file, one line per check."""
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in make_index().items())
    return f'{{"of": {signature()}, "outline": {outline()[0]}, "checks": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(written())
