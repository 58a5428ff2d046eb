"""Installation, upgrade, rollback and removal under a real Slurm while its jobs begin and end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import versions
from clusterproof.integrations.slurm.versions import HOME, VERSIONS, _fits
from tests.integrations.slurm.scripts import POLICY, SETTINGS, Scripted, eventually, settings
from tests.testbed.needs import needs_slurm
from tests.testbed.node import Node, healthy_p5, with_file
from tests.testbed.slurm import CONTROLLER, slurm
from tests.testbed.slurm_version import IN_TURN

pytestmark = needs_slurm

NAME = "gpu001"
JOBS = 8  # during the upgrade, and again during the switch
LINES = {"Prolog": "prolog", "Epilog": "epilog", "HealthCheckProgram": "health-check"}
SWITCHES = (
    f"until [ -e /run/enough ]; do {HOME}/bin/clusterproof-slurm rollback || echo no >>/run/failed; sleep 0.05; done"
)
TIMEOUT_S = 600.0
GOING_ON = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def offered(root: Path, wheel: Path, number: int) -> str:
    """A folder of wheels on a node, each of another version, without their dependencies."""
    folder = root / "root" / f"wheels-{number}"
    folder.mkdir()
    shutil.copy(wheel, folder)
    with zipfile.ZipFile(folder / wheel.name, "a") as archive:
        archive.comment = str(number).encode()
    shutil.copyfile(versions.__file__, folder / "clusterproof-slurm")
    return f"/root/{folder.name}"


def install(node: Node, folder: str) -> subprocess.CompletedProcess[bytes]:
    arguments = ["/usr/bin/python3", f"{folder}/clusterproof-slurm", "install"]
    return node.run(arguments, env={"PIP_NO_DEPS": "1"}, timeout=TIMEOUT_S)


def command(node: Node, word: str) -> subprocess.CompletedProcess[bytes]:
    return node.run([f"{HOME}/bin/clusterproof-slurm", word], timeout=TIMEOUT_S)


def led_to(node: Node) -> str:
    return str((node.root / HOME.relative_to("/")).readlink())


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest, wheel: Path) -> Iterator[Scripted]:
    """A node in a Slurm whose slurm.conf names the scripts, before and after installing the first version."""
    image = with_file(healthy_p5(NAME), SETTINGS, settings('mode = "drain"\nreuse_s = 0\n'))
    named = [f"{keyword}={HOME}/bin/clusterproof-{name}" for keyword, name in LINES.items()]
    files = {"/etc/clusterproof/policy.toml": POLICY}
    with slurm({NAME: image}, settings=named, files=files, version=request.param) as running:
        node = running.node(NAME)
        ran = install(node, offered(node.root, wheel, 1))
        assert ran.returncode == 0, ran.stderr.decode()
        yield Scripted(running)


def test_no_job_that_begins_or_ends_while_versions_are_switched_is_harmed(bed: Scripted, wheel: Path) -> None:
    node = bed.node(NAME)
    first = led_to(node)
    jobs = [bed.submit(NAME) for _ in range(JOBS)]
    ran = install(node, offered(node.root, wheel, 2))
    assert ran.returncode == 0, ran.stderr.decode()
    assert led_to(node) != first
    switching = node.start(["/bin/sh", "-c", SWITCHES])
    jobs += [bed.submit(NAME) for _ in range(JOBS)]
    for job in jobs:
        eventually(lambda job=job: "ended" if bed.field(job, "JobState") not in GOING_ON else "", TIMEOUT_S)  # type: ignore[misc]
    (node.root / "run/enough").touch()
    switching.wait()
    assert {bed.field(job, "JobState") + bed.field(job, "Restarts") for job in jobs} == {"COMPLETED0"}
    assert bed.bed.wait_for(NAME, "IDLE")  # a moment after a job, it may still be planned for one
    assert bed.bed.reason(NAME) == ""
    assert not (node.root / "run/failed").exists()
    assert "no verdict" not in bed.bed.whole_log(NAME)


def test_a_rollback_leads_to_the_version_before_and_another_one_back(bed: Scripted) -> None:
    node = bed.node(NAME)
    seen = [led_to(node)]
    for _ in range(2):
        assert command(node, "rollback").returncode == 0
        seen.append(led_to(node))
    assert seen[0] != seen[1]
    assert seen[0] == seen[2]


def test_a_version_that_cannot_be_installed_changes_nothing(bed: Scripted) -> None:
    node = bed.node(NAME)
    before = led_to(node), sorted((node.root / VERSIONS.relative_to("/")).iterdir())
    folder = node.root / "root/wheels-3"
    folder.mkdir()
    (folder / "clusterproof-9.9-py3-none-any.whl").write_text("no wheel")
    shutil.copyfile(versions.__file__, folder / "clusterproof-slurm")
    ran = install(node, "/root/wheels-3")
    assert ran.returncode == 1
    assert b"clusterproof-9.9-py3-none-any.whl" in ran.stderr
    assert (led_to(node), sorted((node.root / VERSIONS.relative_to("/")).iterdir())) == before


def test_wheels_of_another_python_are_refused_in_one_line_and_change_nothing(bed: Scripted, wheel: Path) -> None:
    node = bed.node(NAME)
    before = led_to(node)
    folder = offered(node.root, wheel, 4)
    other = node.root / folder.lstrip("/") / "PyYAML-6.0.3-cp38-cp38-manylinux2014_x86_64.whl"
    other.write_text("")
    ran = install(node, folder)
    message = ran.stderr.decode()
    assert (ran.returncode, message.count("\n")) == (1, 1)
    assert f"{folder} has {other.name}, and this is Python 3." in message
    assert "expected this command run by the Python that the wheels are of, or wheels that this Python made" in message
    assert led_to(node) == before


MINOR, MACHINE = sys.version_info.minor, os.uname().machine


@pytest.mark.parametrize(
    ("wheel", "fits"),
    [
        ("apprise-1.9.5-py3-none-any.whl", True),
        ("six-1.17.0-py2.py3-none-any.whl", True),
        (f"PyYAML-6.0.3-cp3{MINOR}-cp3{MINOR}-manylinux2014_{MACHINE}.manylinux_2_17_{MACHINE}.whl", True),
        (f"PyYAML-6.0.3-cp3{MINOR + 1}-cp3{MINOR + 1}-manylinux2014_{MACHINE}.whl", False),
        (f"cryptography-46.0.3-cp38-abi3-manylinux_2_28_{MACHINE}.whl", True),
        (f"cryptography-46.0.3-cp3{MINOR + 1}-abi3-manylinux_2_28_{MACHINE}.whl", False),
        (f"PyYAML-6.0.3-cp3{MINOR}-cp3{MINOR}-manylinux2014_riscv64.whl", False),
        (f"ClusterShell-1.9.3-1-cp3{MINOR}-cp3{MINOR}-linux_{MACHINE}.whl", True),
        ("long-1.0-cp27-cp27m-win32.whl", False),
    ],
)
def test_which_wheels_are_for_this_python_and_machine(wheel: str, fits: bool) -> None:
    assert _fits(wheel) is fits


def test_it_is_removed_once_slurm_names_no_script_of_it_and_no_job_is_harmed_by_that(bed: Scripted) -> None:
    node = bed.node(NAME)
    refused = command(node, "remove")
    assert refused.returncode == 1
    assert b"slurm.conf has Prolog, Epilog, HealthCheckProgram of ours; expected none" in refused.stderr
    for name in (CONTROLLER, NAME):
        file = bed.node(name).root / "etc/slurm/slurm.conf"
        file.write_text("".join(line for line in file.read_text().splitlines(True) if str(HOME) not in line))
    bed.bed.output_of("scontrol", "reconfigure")
    eventually(lambda: "" if command(node, "remove").returncode else "removed")
    assert bed.ran_on(bed.submit(NAME)) == NAME
    assert bed.bed.reason(NAME) == ""
    assert not (node.root / HOME.relative_to("/")).is_symlink()
    assert not (node.root / VERSIONS.relative_to("/")).exists()
