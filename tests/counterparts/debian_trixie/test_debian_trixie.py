"""Debian trixie with Python 3.13: the probe and an installed prolog run there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.core.evidence import Status
from tests.counterparts import installed
from tests.counterparts.system import System, broken
from tests.counterparts.wheel import installed_under
from tests.testbed.needs import needs_nodes

NAME = "debian_trixie"
PYTHON = "3.13"
PROLOG = "/opt/clusterproof/bin/clusterproof-prolog"
VERDICT = "/var/lib/clusterproof/slurm/verdict.json"
SETTINGS = 'mode = "drain"\ndeadline_s = 8\n'  # the maximum, as this machine may be busy

pytestmark = [needs_nodes, installed.needs(NAME)]


@pytest.fixture(scope="module")
def bare() -> System:
    """The system without additions."""
    return System(installed.folder(NAME) / "root")


@pytest.fixture(scope="module")
def furnished(bare: System, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    """The system with this checkout's wheel and its dependencies in /opt/clusterproof."""
    tree = installed_under(tmp_path_factory.mktemp(NAME), wheel, PYTHON)
    (tree / "etc" / "clusterproof").mkdir(parents=True)
    (tree / "etc" / "clusterproof" / "slurm.toml").write_text(SETTINGS)
    return System(bare.root, (tree, installed.folder(NAME) / "packages"))


def test_every_collector_of_the_probe_runs_on_its_python(bare: System) -> None:
    evidence = bare.output_of()
    assert evidence.unreached is None, evidence.detail
    assert str(evidence.probe["python"]).startswith(PYTHON)
    assert broken(evidence) == {}
    assert evidence.collectors["boot"].value["os"].startswith("Debian GNU/Linux 13")
    assert evidence.collectors["services"].status is Status.ABSENT  # this folder has no systemd


def test_every_collector_that_loads_the_hardware_runs_on_its_python(bare: System) -> None:
    evidence = bare.output_under_load()
    assert evidence.unreached is None, evidence.detail
    assert broken(evidence) == {}


def test_an_installed_prolog_checks_the_node_and_keeps_its_verdict(furnished: System) -> None:
    ran = furnished.run("SLURM_JOB_ID=42", "/bin/sh", "-c", f"{PROLOG}; echo $? >&2; cat {VERDICT}")
    output = ran.stderr.decode()
    assert " checks in " in output, output
    assert "no verdict" not in output
    verdict = json.loads(ran.stdout)
    assert verdict["checked"] > 10
    assert not [finding for finding in verdict["findings"] if "the check itself broke" in finding["message"]]


def test_an_installed_suite_finds_in_the_demo_what_it_is_to_find(furnished: System) -> None:
    arguments = [
        "-c",
        "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())",
        "--cluster",
        "demo",
        "-q",
        "--no-report",
    ]
    ran = furnished.run("HOME=/tmp", "/opt/clusterproof/bin/python", *arguments)
    output = ran.stdout.decode()
    assert ran.returncode == 1, output[-2000:] + ran.stderr.decode()[-2000:]
    assert "\n16 nodes: " in output
