"""What the command line says of load, and which load a run is to put on its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.opened import is_there
from clusterproof.plugins.evidence.fact import LOADING
from clusterproof.plugins.suite.selection import collectors_of
from clusterproof.plugins.suite.state import is_named

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.load.options import LoadOptions
    from clusterproof.plugins.options.parsed import Options
    from clusterproof.plugins.suite.perf.load_others import Test

LEAST_MIB = 64  # of the scratch file
MOST_S = 24 * 3600  # for exact products
ANYWHERE = Path("/")


def check_load_options(option: Options) -> None:
    """Refuse what makes no sense, in any run. Raises pytest.UsageError."""
    for flag, value, least in (
        ("--fs-size", option.fs_size, LEAST_MIB),
        ("--fs-at-once", option.fs_at_once, 1),
    ):
        if value < least:
            raise pytest.UsageError(f"{flag} is {value}; expected at least {least}")
    if not 1 <= option.exact_s <= MOST_S:
        raise pytest.UsageError(f"--exact-s is {option.exact_s:g}; expected 1 to {MOST_S}")
    for flag, path in (("--fs-bandwidth", option.fs_bandwidth), ("--torch-python", option.torch_python)):
        if path and not path.startswith("/"):
            raise pytest.UsageError(f"{flag} is {path!r:.80}; expected a path of the nodes that begins with /")
    seconds(option.load_timeout)


def load_options(option: Options) -> LoadOptions:
    """The options of a run that loads its nodes. Raises pytest.UsageError."""
    from clusterproof.plugins.benchmarks.load.options import LoadOptions  # few runs load anything

    check_load_options(option)
    return LoadOptions(
        host_root=option.host_root,
        sudo=option.sudo,
        dcgm_level=option.dcgm_level,
        seconds=seconds(option.load_timeout),
        folders=option.load_path,
        torch_python=option.torch_python,
        exact_s=option.exact_s,
        fs_folder=option.fs_bandwidth,
        fs_mib=option.fs_size,
        fs_at_once=option.fs_at_once,
    )


def seconds(text: str) -> dict[str, float]:
    """The deadlines of `--load-timeout` by collector, "" for all. Raises pytest.UsageError."""
    data: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        collector, _, number = word.rpartition("=")
        try:
            data[collector] = float(number)
        except ValueError:
            data[collector] = 0.0
        if (collector and collector not in LOADING) or not 1 <= data[collector] < float("inf"):
            from clusterproof.plugins.benchmarks.load.options import SECONDS

            names = ", ".join(SECONDS)
            raise pytest.UsageError(f"--load-timeout has {word!r:.60}; expected S or NAME=S, NAME one of {names}")
    return data


def collectors_to_load(items: Iterable[pytest.Item], option: Options) -> frozenset[str]:
    """The collectors that load the hardware and that the selected tests need: none where `-m` does not name perf."""
    if not is_named(option.markexpr, "perf"):
        return frozenset()
    wanted = (collectors_of(item) for item in items if item.get_closest_marker("perf"))
    return load_options(option).asked(frozenset[str]().union(*wanted))


def paths_named(config: pytest.Config) -> list[Path]:
    """The folders and files whose tests the command line asks for; of a package's name (`--pyargs`), any."""
    named = [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]
    return [path if is_there(path) else ANYWHERE for path in named]


def collectors_named(option: Options, paths: Collection[Path], others: Iterable[Test] = ()) -> frozenset[str]:
    """Those that load the hardware and are needed by the tests that the command line selects, packaged or of `others`.

    With xdist nodes are asked before any test is collected: so it goes only by paths, `-m` and `-k`.
    """
    wanted = (test.collectors for test in _selected(option, paths, others))
    return load_options(option).asked(frozenset[str]().union(*wanted))


def pairs_are_needed(option: Options, paths: Collection[Path], others: Iterable[Test] = ()) -> bool:
    """Whether one of the tests that the command line selects needs pairs of nodes measured."""
    return any(test.needs_pairs for test in _selected(option, paths, others))


def others_named(config: pytest.Config) -> list[Test]:
    """The tests of other authors that the command line names, where it asks for load at all."""
    if not is_named(config.option.markexpr, "perf"):
        return []
    from clusterproof.plugins.suite.perf.load_others import others  # few runs load anything

    return others(config, paths_named(config))


def _selected(option: Options, paths: Collection[Path], others: Iterable[Test]) -> list[Test]:
    """The tests of load that the command line selects, going only by paths, `-m` and `-k`."""
    if not is_named(option.markexpr, "perf"):
        return []
    from _pytest.mark.expression import Expression  # pytest has no public name for what reads -m and -k

    def says_yes(expression: str, holds: Callable[[str], bool]) -> bool:
        def matches(word: str, /, **_details: str | int | bool | None) -> bool:
            return holds(word)

        return not expression or Expression.compile(expression).evaluate(matches)

    def is_selected(test: Test) -> bool:
        by_mark = says_yes(option.markexpr, lambda word: word in test.marks)
        return "perf" in test.marks and by_mark and says_yes(option.keyword, lambda word: word.lower() in test.words)

    packaged = [test for test in _packaged() if any(test.file.is_relative_to(path) for path in paths)]
    return [test for test in (*packaged, *others) if is_selected(test)]


def _packaged() -> Iterator[Test]:
    from clusterproof.plugins.evaluation.all_checks import all_checks, marks_of
    from clusterproof.plugins.suite.perf.load_others import Test

    for check in all_checks().values():
        text = f"{check.path} {check.function.__name__}".lower()
        yield Test(text, marks_of(check), Path(check.path).resolve(), check.collectors, check.needs_pairs)
