"""What the command line says of load, and which load a run is to put on its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.check import Check
from clusterproof.plugins.load.options import DCGM_SECONDS, LEAVES, SECONDS, LoadOptions
from clusterproof.plugins.needs import leaves_of
from clusterproof.plugins.options import Option
from clusterproof.plugins.state import is_named

LEAST_MIB = 64  # of the scratch file
ANYWHERE = Path("/")

GROUPS: dict[str, tuple[Option, ...]] = {
    "clusterproof: load, where -m names perf": (
        Option(
            "--load-timeout",
            "seconds for a measurement of one node: for all (600), or for some (dcgm_diag=1200,gpu_gemm=60); they are "
            + ", ".join(SECONDS),
            {"default": "", "metavar": "S"},
        ),
        Option(
            "--dcgm-level",
            "how thorough dcgmi diag is: 1 (seconds), 2 (the default: 2 to 10 min), 3 (15 min), 4 (1 to 2 h)",
            {"type": int, "default": 2, "choices": tuple(DCGM_SECONDS), "metavar": "N"},
        ),
        Option(
            "--load-path",
            "folders of the nodes with all_reduce_perf, nvbandwidth, … where neither PATH nor docs/load.md names them",
            {"default": "", "metavar": "DIR:…"},
        ),
        Option(
            "--torch-python",
            "the Python of the nodes that has PyTorch (default: the first of those that docs/load.md names)",
            {"default": "", "metavar": "PATH"},
        ),
        Option(
            "--fs-bandwidth",
            "measure how fast nodes write and read a scratch file in this folder of theirs; it is removed after",
            {"default": "", "metavar": "DIR"},
        ),
        Option(
            "--fs-size",
            "MiB of that scratch file (default 4096); four times as much must be free",
            {"type": int, "default": 4096, "metavar": "MIB"},
        ),
        Option(
            "--fs-at-once",
            "how many nodes write and read at once (default 4: they may share the file system)",
            {"type": int, "default": 4, "metavar": "N"},
        ),
    ),
}


def load_options(option: Any) -> LoadOptions:
    """The options of a run. Raises pytest.UsageError."""
    for flag, value, least in (
        ("--fs-size", option.fs_size, LEAST_MIB),
        ("--fs-at-once", option.fs_at_once, 1),
    ):
        if value < least:
            raise pytest.UsageError(f"{flag} is {value}; expected at least {least}")
    for flag, path in (("--fs-bandwidth", option.fs_bandwidth), ("--torch-python", option.torch_python)):
        if path and not path.startswith("/"):
            raise pytest.UsageError(f"{flag} is {path!r:.80}; expected a path of the nodes that begins with /")
    return LoadOptions(
        host_root=option.host_root,
        sudo=option.sudo,
        dcgm_level=option.dcgm_level,
        seconds=seconds(option.load_timeout),
        folders=option.load_path,
        torch_python=option.torch_python,
        fs_folder=option.fs_bandwidth,
        fs_mib=option.fs_size,
        fs_at_once=option.fs_at_once,
    )


def seconds(text: str) -> dict[str, float]:
    """The deadlines of `--load-timeout` by leaf, "" for all. Raises pytest.UsageError."""
    told: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        leaf, _, number = word.rpartition("=")
        try:
            told[leaf] = float(number)
        except ValueError:
            told[leaf] = 0.0
        if (leaf and leaf not in LEAVES) or not 1 <= told[leaf] < float("inf"):
            names = ", ".join(SECONDS)
            raise pytest.UsageError(f"--load-timeout has {word!r:.60}; expected S or NAME=S, NAME one of {names}")
    return told


def leaves_to_load(items: Iterable[pytest.Item], option: Any) -> frozenset[str]:
    """The leaves that load the hardware and that the selected tests need: none where `-m` does not name perf."""
    if not is_named(option.markexpr, "perf"):
        return frozenset()
    wanted = (leaves_of(item) for item in items if item.get_closest_marker("perf"))
    return load_options(option).asked(frozenset[str]().union(*wanted))


def paths_named(config: pytest.Config) -> list[Path]:
    """The folders and files whose tests the command line asks for; of a package's name (`--pyargs`), any."""
    named = [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]
    return [path if path.exists() else ANYWHERE for path in named]


def leaves_of_packaged(option: Any, paths: Collection[Path]) -> frozenset[str]:
    """Those that the packaged checks of these paths need which the command line selects, as far as `-m` and `-k` tell.

    With xdist nodes are asked before anybody has collected a test.
    """
    wanted = (check.leaves for check in _selected(option, paths))
    return load_options(option).asked(frozenset[str]().union(*wanted))


def needs_pairs_of_packaged(option: Any, paths: Collection[Path]) -> bool:
    """Whether one of the packaged checks that the command line selects needs pairs of nodes measured."""
    return any(check.needs_pairs for check in _selected(option, paths))


def _selected(option: Any, paths: Collection[Path]) -> list[Check]:
    """The packaged checks of load that the command line selects, as far as paths, `-m` and `-k` tell."""
    if not is_named(option.markexpr, "perf"):
        return []
    from _pytest.mark.expression import Expression  # pytest has no public name for what reads -m and -k

    from clusterproof.plugins.suite import all_checks, marks_of

    def says_yes(expression: str, holds: Callable[[str], bool]) -> bool:
        def matches(word: str, /, **_details: str | int | bool | None) -> bool:
            return holds(word)

        return not expression or Expression.compile(expression).evaluate(matches)

    def is_selected(check: Check) -> bool:
        marks, name = marks_of(check), f"{check.path} {check.function.__name__}".lower()
        by_mark = says_yes(option.markexpr, lambda word: word in marks)
        return "perf" in marks and by_mark and says_yes(option.keyword, lambda word: word.lower() in name)

    def is_named_file(check: Check) -> bool:
        file = Path(check.function.__code__.co_filename).resolve()
        return any(file.is_relative_to(path) for path in paths)

    return [check for check in all_checks().values() if is_selected(check) and is_named_file(check)]
