"""Runs the real plugin with checks whose verdicts the recorded nodes dictate."""

from __future__ import annotations

import functools
import pkgutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from clusterproof import plugins, reports
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results
from tests.builders.recordings import boot, gpu, node, nvml, recorded, unreached
from tests.builders.wheel import linked_in

ROOT = Path(__file__).parents[2]
WITHOUT_HYPOTHESIS = "-p no:hypothesispytest"

# Each test runs in one of these ways, alone or with xdist workers; with `--all` in both.
ALONE_OR_NOT = [
    pytest.param(options, id=name, marks=pytest.mark.in_turn(name, by="test"))
    for name, options in (("alone", []), ("two workers", ["-n2"]))
]

# A check reads its verdict from the kernel name that the node reported.
SAYING = """
    import pytest
    from clusterproof.plugins.evaluation.routing import evidence
    from clusterproof.plugins.core.verdict import concern, incomplete, not_applicable

    def say(word):
        if word == "concern":
            concern("the word is odd; expected a good one")
        if word == "incomplete":
            incomplete("the word was not heard")
        if word == "not applicable":
            not_applicable("nobody speaks here")
        if word == "skip":
            pytest.skip("skipped by hand")
        if word == "pytest.fail":
            pytest.fail("failed by hand")
        if word == "broken":
            {}["no such key"]
        assert word == "pass", f"the word is {word}; expected pass"
"""
LIGHT = (
    SAYING
    + """
    pytestmark = [pytest.mark.host, pytest.mark.prolog]

    @pytest.mark.hyperpod_node_debugger("G")
    @evidence("uname -r")
    def test_word(node):
        \"\"\"The word is wrong.

        A wrong word means nothing good.

        Remedy: Say another.
        \"\"\"
        say(node.boot.kernel)
"""
)
USUAL = LIGHT.replace("def test_word(node):", "def test_word(node, tmp_path):")
WAYS = pytest.mark.parametrize(  # each test has one; test_run_loop proves both alike
    "checks",
    [
        pytest.param(checks, id=name, marks=pytest.mark.in_turn(name, by="test"))
        for name, checks in (("light", LIGHT), ("usual way", USUAL))
    ],
)
DEVICES = (
    SAYING
    + """
    pytestmark = [pytest.mark.gpu, pytest.mark.hyperpod_nccl("13")]

    def test_word_of_gpu(gpu):
        \"\"\"A GPU says a wrong word.\"\"\"
        say(gpu.data["word"])
"""
)
WORDS = {
    "gpu001": "pass",
    "gpu002": "bad",
    "gpu003": "concern",
    "gpu004": "incomplete",
    "gpu005": "not applicable",
    "gpu006": "broken",
    "gpu008": "pass",
}
VERDICTS = {
    "gpu001": Verdict.PASS,
    "gpu002": Verdict.FAIL,
    "gpu003": Verdict.CONCERN,
    "gpu004": Verdict.INCOMPLETE,
    "gpu005": Verdict.NOT_APPLICABLE,
    "gpu006": Verdict.INCOMPLETE,
    "gpu007": Verdict.INCOMPLETE,
    "gpu008": Verdict.PASS,
}


def saying(name: str, *words: str) -> NodeEvidence:
    """A node that reports a word; with several words, each GPU reports one."""
    if len(words) == 1:
        return node(name, boot=boot(words[0], hostname=name), nvml=nvml(gpu(0, word=words[0])))
    return node(name, boot=boot(hostname=name), nvml=nvml(*(gpu(index, word=word) for index, word in enumerate(words))))


def all_verdicts() -> list[NodeEvidence]:
    """A node for each verdict, and one that does not answer."""
    nodes = [saying(name, word) for name, word in WORDS.items()]
    return sorted([*nodes, unreached("gpu007")], key=lambda evidence: evidence.node)


OF_TORCH = "clusterproof.plugins.evidence.exact.on_node."  # these run on nodes, in a Python with PyTorch


def load_suite() -> None:
    """Load every module of the suite for the lifetime of this process.

    pytest's own fixture forgets modules that a run in this process loads, but their packages keep pointing to them: a
    later run would see two of each, with two sets of stash keys.
    """
    for package in (plugins, reports):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(OF_TORCH):
                import_module(module.name)
    for name in ("ClusterShell.NodeSet", "xdist.dsession"):  # loaded only when a run needs them
        import_module(name)


class Package:
    """An installed package whose metadata is read once; pytest reads that of all packages twice in each run."""

    def __init__(self, distribution: metadata.Distribution) -> None:
        self._distribution = distribution

    def __getattr__(self, name: str) -> Any:
        return getattr(self._distribution, name)

    @functools.cached_property
    def metadata(self) -> Any:
        return self._distribution.metadata

    @functools.cached_property
    def entry_points(self) -> Any:
        return self._distribution.entry_points

    @functools.cached_property
    def files(self) -> Any:
        return self._distribution.files


@functools.cache
def packages() -> list[Package]:
    """The packages installed in this Python."""
    return [*map(Package, distributions())]


@dataclass
class Runs:
    """A folder with checks and a recording, and ways to run pytest on them."""

    pytester: pytest.Pytester

    @classmethod
    def prepared(cls, pytester: pytest.Pytester, packages: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
        """A folder with a strict pytest.toml; processes find `clusterproof` in `packages`, installed or not."""
        linked_in(packages)
        monkeypatch.setenv("PYTHONPATH", str(packages))
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_HYPOTHESIS)  # pytester removes it
        pytester.makefile(".toml", pytest='[pytest]\nstrict_markers = true\njunit_family = "xunit2"\n')
        return cls(pytester)

    @property
    def folder(self) -> Path:
        return self.pytester.path

    def cluster(self, nodes: Iterable[NodeEvidence], **more: Any) -> str:
        """Record these nodes; returns the value for `--cluster`."""
        return recorded(self.folder / "recording", nodes, **more)

    def checks(self, **files: str) -> None:
        """Write check files, by name."""
        self.pytester.makepyfile(**files)

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process, writing only the reports that the test asks for."""
        return self.plain(*_without_reports(arguments))

    def plain(self, *arguments: str) -> pytest.RunResult:
        """Run pytest as a user would, without plugins that the suite does not use."""
        loaded = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # this process has already loaded the plugin
        plugins = ("-p", "clusterproof.plugins.cluster")
        with patch.object(metadata, "distributions", packages):
            return self.pytester.runpytest_inprocess(*plugins, *loaded, *arguments)

    def over(self, nodes: Iterable[NodeEvidence], *arguments: str) -> pytest.RunResult:
        """Record these nodes, and run the checks on them with `--results` into a new file."""
        self.results_file.unlink(missing_ok=True)
        return self.run("--cluster", self.cluster(nodes), "--results", str(self.results_file), *arguments)

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pytest in a separate process."""
        own = ["-p", "clusterproof.plugins.cluster", *_without_reports(arguments)]
        command = [sys.executable, "-m", "pytest", *own]
        return subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    @property
    def results_file(self) -> Path:
        return self.folder / "results.jsonl"

    @property
    def results(self) -> list[Result]:
        return read_results(self.results_file)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Each result, with the fields that apply to it."""
        return [result.to_json() for result in self.results]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict of the one check on each node."""
        return {result.node: result.verdict for result in self.results}


def _without_reports(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments if "--report" in arguments else (*arguments, "--no-report")


def counts(result: pytest.RunResult) -> Counter[str]:
    """The counts in pytest's last line, by word."""
    line = next(line for line in reversed(result.outlines) if " in " in line).strip("= ").rpartition(" in ")[0]
    pairs = (part.split(" ", 1) for part in line.split(", "))
    return Counter({word: int(number) for number, word in pairs})


def junit_cases(file: Path) -> dict[str, ET.Element]:
    """The cases of a JUnit file by name, asserting that none occurs twice."""
    cases = list(ET.parse(file).getroot().iter("testcase"))
    named = {case.attrib["name"]: case for case in cases}
    assert len(named) == len(cases)
    return named
