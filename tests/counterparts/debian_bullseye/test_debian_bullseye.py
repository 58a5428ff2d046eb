"""Debian bullseye with Python 3.9: the probe runs there; Slurm's scripts, which need 3.10, drain nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counterparts import installed
from tests.counterparts.system import System, broken
from tests.counterparts.wheel import installed_under
from tests.testbed.needs import needs_nodes

NAME = "debian_bullseye"
PYTHON = "3.9"

pytestmark = [needs_nodes, installed.needs(NAME)]


@pytest.fixture(scope="module")
def system() -> System:
    return System(installed.folder(NAME) / "root")


def test_every_collector_of_the_probe_runs_on_its_python(system: System) -> None:
    evidence = system.output_of()
    assert evidence.unreached is None, evidence.detail
    assert str(evidence.probe["python"]).startswith(PYTHON)
    assert broken(evidence) == {}
    assert evidence.collectors["boot"].value["os"].startswith("Debian GNU/Linux 11")


def test_every_collector_that_loads_the_hardware_runs_on_its_python(system: System) -> None:
    evidence = system.output_under_load()
    assert evidence.unreached is None, evidence.detail
    assert broken(evidence) == {}


@pytest.fixture(scope="module")
def furnished(system: System, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    """The system with this checkout's wheel installed by force."""
    return System(system.root, (installed_under(tmp_path_factory.mktemp(NAME), wheel, PYTHON),))


@pytest.mark.parametrize("script", ["prolog", "epilog", "health-check"])
def test_a_script_of_slurms_on_too_old_a_python_drains_nothing_and_says_so(furnished: System, script: str) -> None:
    ran = furnished.run("SLURM_JOB_ID=42", f"/opt/clusterproof/bin/clusterproof-{script}")
    output = ran.stderr.decode()
    assert ran.returncode == 0, output
    assert "no verdict: Python 3.9.2; expected 3.10 or newer" in output
