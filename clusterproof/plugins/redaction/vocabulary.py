"""The words that identify nothing: those of the suite's own files, of the kernel, of drivers and of tools."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
FOLDERS = ("plugins", "checks", "reports")
# Names in examples of the suite's own docstrings.
_NAMES = frozenset(
    ("oyuutbev", "abcdefgh", "abcdef", "abcde", "hydra", "hodges", "lehmann", "sunilpp", "ville", "adai", "nebius")
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_PARTS = re.compile(r"(?<![\w.@/:-])[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+(?![\w@-])")
_PATH = re.compile(r"(?<![\w.<)\]}])(?:/[A-Za-z_][\w.+-]*)+")
_CATALOGUED = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[.-][A-Za-z0-9]+)*")  # of products: H100, p5.48xlarge
_NUMBERED = re.compile(r"\d{2}|\d.*\d")  # as many digits as an example of a host has


@cache
def words() -> frozenset[str]:
    """Every word, in small letters: also those of several parts, as `nvidia-smi`, that are known as a whole."""
    _, single, several, *_ = _listed()
    data = [*single.split(), *several.split()]
    text = _sources()
    of_parts = {word.lower() for word in _PARTS.findall(text) if not _NUMBERED.search(word)}
    listed = {word.lower() for word in _CATALOGUED.findall(_catalogue())}
    return frozenset({*data, *(word.lower() for word in _WORD.findall(text)), *of_parts, *listed} - _NAMES)


@cache
def folders() -> frozenset[str]:
    """The parts of every path that the suite's own files name: `/opt/amazon/efa` has three."""
    data = {part for path in _PATH.findall(_sources()) for part in path.split("/")}
    data.update(_listed()[3].split())
    return frozenset(part.rstrip(".") for part in data if not re.search(r"\d{3}", part)) - _NAMES


def _catalogue() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "plugins/catalog").glob("*.toml")))


@cache
def accounts() -> frozenset[str]:
    """Accounts and programs that are called so everywhere."""
    return frozenset(_listed()[4].split())


@cache
def _sources() -> str:
    files = (path for folder in FOLDERS for path in sorted((PACKAGE / folder).rglob("*")))
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".toml"))


def _listed() -> list[str]:
    return Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split("\n\n")
