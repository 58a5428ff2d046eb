"""The API of `import clusterproof`: documented, typed, loaded lazily; and plugins of third parties."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clusterproof
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.suite import hookspecs
from clusterproof.plugins.suite.gatherer import collector_files
from tests.builders.wheel import ROOT, Installed

EXTEND = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
FACE = ast.parse((ROOT / "clusterproof" / "__init__.py").read_text(encoding="utf-8"))
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", EXTEND, re.DOTALL))


def for_type_checkers() -> set[str]:
    """The names that a type checker sees."""
    (block,) = (line for line in FACE.body if isinstance(line, ast.If))
    imports = [line for line in block.body if isinstance(line, ast.ImportFrom)]
    return {name.asname for line in imports for name in line.names if name.asname}


def test_what_runs_finds_the_names_that_type_checkers_find() -> None:
    names = set(clusterproof.__all__)
    assert names == for_type_checkers()
    objects = {getattr(clusterproof, name) for name in names - {"__version__"}}
    assert all(item.__module__.startswith("clusterproof.") for item in objects)
    assert set(dir(clusterproof)) >= names


def test_every_name_and_hook_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", EXTEND.partition("## What is public")[2]))
    hooks = {name for name in vars(hookspecs) if name.startswith("pytest_cluster_")}
    assert documented >= {*clusterproof.__all__, *hooks} - {"__version__"}


def test_a_name_that_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'clusterproof' has no attribute 'nodes'"):
        clusterproof.nodes  # noqa: B018
    assert not hasattr(clusterproof, "tests")


@pytest.mark.long
def test_importing_it_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import clusterproof; print(sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout in ("['clusterproof']\n", "['__future__', 'clusterproof']\n")


def test_every_error_has_one_root() -> None:
    from clusterproof.integrations.slurm.control import SlurmError
    from clusterproof.plugins.core.nodeset import NodesetError
    from clusterproof.plugins.transport.ssh.login import LoginFailed
    from clusterproof.reports.history import HistoryError

    for error in (SlurmError, LoginFailed, NodesetError, HistoryError, clusterproof.InventoryError):
        assert issubclass(error, clusterproof.ClusterproofError)


def test_the_documented_suite_runs_as_written_beside_an_installed_wheel(installed: Installed, tmp_path: Path) -> None:
    assert sorted(FILES) == ["command_line.py", "conftest.py", "test_boot.py"]
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    host = tmp_path / "host"
    (host / "proc").mkdir(parents=True)
    (host / "proc" / "cmdline").write_text("root=/dev/nvme0n1p1 ro quiet\n", encoding="utf-8")
    ran = installed.pytest(tmp_path, "--cluster", "rack:7", "-s", "--no-report", f"--host-root={host}")
    assert "iommu=pt is not among 3 words; expected it" in ran.stdout, ran.stdout + ran.stderr
    assert "host.iommu_passes_through left fail" in ran.stdout
    assert "Boot with iommu=pt on the kernel's command line." in ran.stdout
    assert ran.returncode == 1
    wrong = installed.pytest(tmp_path, "--cluster", "rack:seven", "--no-report")
    assert "rack:seven names no rack; expected rack:NUMBER" in wrong.stdout + wrong.stderr
    assert wrong.returncode == 4


def test_type_checkers_know_what_is_public_of_an_installed_wheel(installed: Installed, tmp_path: Path) -> None:
    assert (installed.package / "py.typed").is_file()
    (tmp_path / "own.py").write_text("from clusterproof import Node\nreveal_type(Node.name)\n", encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--python-executable", str(installed.python), "--strict", "own.py"]
    ran = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    assert 'Revealed type is "def (self: clusterproof.plugins.evidence.node.Node) -> str"' in ran.stdout, ran.stdout


def test_the_wheel_holds_what_runs(installed: Installed) -> None:
    names = {path.name for path in installed.package.iterdir()}
    assert not names & {"tests", "bench", "docs", "scripts"}
    assert names >= {"__init__.py", "collector.py", "pytest.toml", "checks", "plugins", "reports"}


pytest_plugins = ["pytester"]

CONFTEST = """
from clusterproof.plugins.transport import Answer
from clusterproof.plugins.transport import connection_for
from clusterproof.plugins.core.cluster import Cluster, Target

class Relay:
    def run(self, targets, program, limits, answered):
        print("relayed to", [target.name for target in targets])
        connection_for("local").run(targets, program, limits, answered)

def pytest_cluster_inventory(config, text):
    if text.startswith("rack:"):
        return Cluster("rack", "relay", (Target("left"), Target("right")))

def pytest_cluster_connection(config, cluster):
    return Relay() if cluster.connection == "relay" else None

def pytest_cluster_collectors(config):
    return [str(config.rootpath / "weather.py")]
"""

WEATHER = '''
"""What the weather is."""
from __future__ import annotations

from clusterproof.plugins.agent.reading import Node


def read(node: Node) -> object:
    """The sky."""
    return {"sky": "blue", "host": node.read("/proc/sys/kernel/hostname").strip()}
'''

CHECK = """
def test_sky(node):
    \\"\\"\\"The sky is grey.\\"\\"\\"
    sky = node.collector("weather").value["sky"]
    assert sky == "grey", f"the sky is {sky}; expected grey"
"""


def test_a_third_party_extends_the_suite_the_pytest_way(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(weather=WEATHER, test_weather=CHECK.replace("\\", ""))
    ran = pytester.runpytest_subprocess(
        "-p", "clusterproof.plugins.cluster", "--cluster", "rack:7", "-s", "-p", "no:cacheprovider"
    )
    ran.stdout.fnmatch_lines(["relayed to *left*right*", "*The sky is grey: 2 of 2 nodes (left,right)*"])
    ran.stdout.fnmatch_lines(["*the sky is blue; expected grey*"])
    assert ran.ret == 1


def test_a_connection_that_nobody_has_is_refused_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace('"rack", "relay"', '"rack", "relais"'))
    pytester.makepyfile(weather=WEATHER, test_weather=CHECK.replace("\\", ""))
    ran = pytester.runpytest_subprocess("-p", "clusterproof.plugins.cluster", "--cluster", "rack:7", "--no-report")
    ran.stderr.fnmatch_lines(["ERROR: no connection is called 'relais'; known are local, *pytest_cluster_connection"])
    assert "INTERNALERROR" not in ran.stdout.str()
    assert ran.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.long
@pytest.mark.parametrize("source", ["rack:7", "replay:recorded"])
def test_a_third_partys_check_has_its_verdict_under_redact_too(pytester: pytest.Pytester, source: str) -> None:
    pytester.makeconftest(CONFTEST)
    check = 'def test_sky(node): assert node.answer("weather")["count"] == 0, "3 clouds; expected none"'
    pytester.makepyfile(weather="def read(node): return {'count': 3}", test_weather=check)
    run = ("-p", "clusterproof.plugins.cluster", "-p", "no:cacheprovider", "--no-report")
    if source == "replay:recorded":
        pytester.runpytest_subprocess(*run, "--cluster", "rack:7", "--record", "recorded", "--redact")
    ran = pytester.runpytest_subprocess(*run, "--cluster", source, "--redact")
    ran.stdout.fnmatch_lines(["*sky: 2 of 2 nodes*", "*3 clouds; expected none*"])
    assert ran.ret == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["missing.py"], "missing.py': No such file or directory; expected a Python file with read(node)"),
        (["folder"], "folder': Is a directory; expected a Python file with read(node)"),
        (["latin.py"], "latin.py: byte 3 is not UTF-8; expected a Python file with read(node)"),
        (["pci.py"], "pci.py: clusterproof itself has a pci; expected another name of the file"),
        (["tools.py"], "tools.py: clusterproof itself has a tools; expected another name of the file"),
        (["weather.py", "folder/weather.py"], "weather.py have the same name; expected a name for each"),
    ],
)
def test_a_collector_that_cannot_run_beside_the_suites_own_is_refused_in_one_line(
    tmp_path: Path, names: list[str], words: str
) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("pci.py", "tools.py", "weather.py", "folder/weather.py"):
        (tmp_path / name).write_text(WEATHER, encoding="utf-8")
    (tmp_path / "latin.py").write_bytes('"""é"""\n'.encode("latin-1"))
    with pytest.raises(InventoryError) as refused:
        collector_files([tmp_path / "weather.py", *(tmp_path / name for name in names)])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert collector_files([tmp_path / "weather.py"] * 2) == [tmp_path / "weather.py"]
