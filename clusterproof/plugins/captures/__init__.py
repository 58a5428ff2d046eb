"""Captures: files with outputs of commands that a person collected by hand. This module assigns files to nodes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.captures.file_names import (
    are_of_nodes,
    begins_with_output,
    prefix,
    stem,
    suffix,
    without_number,
)
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import listed

MAX_FILES = 10_000
_NO_FILE = "no file in it"
_MAX_NAME = 100


class NoCaptureError(ClusterproofError, ValueError):
    """A path without a capture; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of one node, in the order of their names, and those that only partly belong to it."""

    name: str
    files: tuple[Path, ...]
    shared: tuple[Path, ...] = ()
    missing: str = ""  # for a node whose folder has no usable files: the reason


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a capture, and the files that belong to none."""

    root: Path
    nodes: tuple[NodeFiles, ...]
    strays: tuple[str, ...] = ()  # each with the reason


Shows = Callable[[Path], tuple[str, ...]]  # the nodes named inside a file, if any


def layout(path: Path, shows: Shows = lambda _file: ()) -> Layout:
    """The nodes whose outputs are at a path: a file, a folder of files, or a folder with one folder per node.

    Raises NoCaptureError.
    """
    try:
        if path.is_file():
            of_file = {name: [path] for name in shows(path)}
            alone = {} if of_file else {stem(path.name): [path]}
            return Layout(path.parent, _named(alone, of_file, {}))
        if not path.is_dir():
            raise NoCaptureError("no such file or folder")
        return _of_folder(path, shows)
    except (OSError, ValueError) as problem:
        raise NoCaptureError(getattr(problem, "strerror", None) or str(problem)) from None


def _of_folder(root: Path, shows: Shows) -> Layout:
    inside = sorted(os.scandir(root), key=lambda entry: entry.name)
    strays = [f"{entry.name} is a link, which is not followed" for entry in inside if entry.is_symlink()]
    shown = [entry for entry in inside if not entry.name.startswith(".") and not entry.is_symlink()]
    files = [Path(entry.path) for entry in shown if entry.is_file()]
    groups, missing = _folders([entry for entry in shown if entry.is_dir()], MAX_FILES - len(files), strays, root)
    shared: dict[str, list[Path]] = {}
    for file in list(files):
        names = shows(file)
        if len(names) > 1 or (names and groups and prefix(file.name) not in groups):
            files.remove(file)
            for name in names:
                shared.setdefault(name, []).append(file)
    if not groups:
        groups = _by_name(files, root, strays)
    else:
        strays += _join(groups, files)
    if not groups and not shared:
        raise NoCaptureError(listed(strays) or _NO_FILE)
    return Layout(root, _named(groups, shared, missing), tuple(strays))


def _folders(
    entries: Iterable[os.DirEntry[str]], left: int, strays: list[str], root: Path
) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """The files of each folder; and why others have none, unless they contain a run's reports.

    A folder without files counts as a node's if its name differs only in numbers from that of one with files.
    """
    groups: dict[str, list[Path]] = {}
    missing: dict[str, str] = {}
    for entry in entries:
        stray_count = len(strays)
        paths = files_under(Path(entry.path), left, strays, root)
        left -= len(paths)
        if left < 0:
            raise NoCaptureError(f"more than {MAX_FILES:,} files")
        if paths:
            groups[entry.name] = paths
        elif not any(line.endswith(OF_A_RUN) for line in strays[stray_count:]):
            strays += [] if strays[stray_count:] else [f"{entry.name}: {_NO_FILE}"]
            missing[entry.name] = strays[stray_count]
    if groups:
        patterns = {without_number(name) for name in groups}
        groups |= {name: [] for name in missing if without_number(name) in patterns}
    return groups, missing


def _by_name(files: Iterable[Path], root: Path, strays: list[str]) -> dict[str, list[Path]]:
    """Files in one folder: all of one node, or each with its node's name before or behind that of the output."""
    files = list(files)
    if not files:
        return {}
    names = [prefix(file.name) for file in files]
    if not all(names):
        names = [prefix(file.name) or suffix(file.name) for file in files]
        rest = [file.name for file, name in zip(files, names, strict=True) if not name]
        if not are_of_nodes(filter(None, names)) or any(map(begins_with_output, rest)):
            return {root.resolve().name: files}
        strays += (f"{name} lies beside the nodes' files, and is of none of them" for name in rest)
    groups: dict[str, list[Path]] = {}
    for file, name in zip(files, names, strict=True):
        if name:
            groups.setdefault(name, []).append(file)
    return groups


def _join(groups: dict[str, list[Path]], files: Iterable[Path]) -> list[str]:
    """Assign files next to the nodes' folders to the node whose name they begin with; returns the rest.

    A node without a folder counts if its name differs only in numbers from that of one with a folder.
    """
    strays = []
    patterns = {without_number(name) for name in groups}
    for file in files:
        owner = prefix(file.name)
        if owner and without_number(owner) in patterns:
            groups.setdefault(owner, []).append(file)
        else:
            strays.append(f"{file.name} lies beside the nodes' folders, and is of none of them")
    return strays


def _named(
    groups: Mapping[str, list[Path]], shared: Mapping[str, list[Path]], missing: Mapping[str, str]
) -> tuple[NodeFiles, ...]:
    """The groups with valid, unique node names; files of several nodes name their nodes themselves."""
    taken: dict[str, NodeFiles] = {}
    for raw in {**groups, **shared}:
        name = node_name(raw, "node")
        number = 2
        while name in taken:
            name, number = f"{node_name(raw, 'node')}-{number}", number + 1
        files, of_several = tuple(groups.get(raw, ())), tuple(shared.get(raw, ()))
        why = missing.get(raw, "") if not (files or of_several) else ""
        taken[name] = NodeFiles(name, files, of_several, why)
    return tuple(taken.values())


def node_name(raw: str, otherwise: str) -> str:
    """Convert to a name of letters, digits, `.`, `_` and `-`, as every node's is."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", raw)[:_MAX_NAME].strip("-.") or otherwise


REPORTS = frozenset({"results.jsonl", "junit.xml"})  # a folder with these was written by a run
OF_A_RUN = "has the reports of a run, which are no outputs of a node"
MAX_DEPTH = 8  # folders in folders


def files_under(folder: Path, most: int, strays: list[str], root: Path) -> list[Path]:
    """All files under a folder, links left out; at most one more than `most`, and so many lines of what is not read."""
    files: list[Path] = []

    def locked(wrong: OSError) -> None:
        strays.append(f"{Path(wrong.filename).relative_to(root)} cannot be opened: {wrong.strerror}")

    for where, folders, names in os.walk(folder, onerror=locked):
        folder_path = Path(where)
        if REPORTS.issubset(names):
            strays.append(f"{folder_path.relative_to(root)} {OF_A_RUN}")
            folders.clear()
            continue
        if len(folder_path.relative_to(folder).parts) >= MAX_DEPTH:
            strays += (
                f"{(folder_path / name).relative_to(root)} is more than {MAX_DEPTH} folders deep, and not read"
                for name in folders
            )
            folders.clear()
        folders.sort()
        for name in sorted(name for name in names if not name.startswith(".")):
            file = folder_path / name
            why = _why_not(file)
            if why:
                strays.append(f"{file.relative_to(root)} {why}")
            else:
                files.append(file)
            if len(files) > most or len(strays) > most:
                return files
    return files


def _why_not(path: Path) -> str:
    """Why a file is not read; empty where it is."""
    try:
        mode = path.lstat().st_mode
    except OSError as wrong:
        return f"cannot be read: {wrong.strerror}"
    if stat.S_ISLNK(mode):
        return "is a link, which is not followed"
    return "" if stat.S_ISREG(mode) else "is no regular file, and not read"
