"""The gate's image: its build context and content, that it runs as in pods, who publishes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.builders.wheel import ROOT, clone_of, wheel_of
from tests.counterparts import installed
from tests.testbed.needs import needs_podman

FOLDER = ROOT / "clusterproof" / "integrations" / "kubernetes"
INSTRUCTIONS = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
UNNAMED = "the image's name is {!r}; expected the variable IMAGE of this repository, as REGISTRY/clusterproof"
BASE, IMAGE = "localhost/python:base", "localhost/clusterproof:tried"
# As on a machine with control groups of version 1, with a read-only root and no network.
RUN = f"""
mount -t cgroup2 none /sys/fs/cgroup
exec "$@" --cgroup-manager cgroupfs --runtime runc run --rm --read-only --tmpfs /tmp --network none --pids-limit 0 \\
    --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 {IMAGE} $ARGUMENTS
"""
OWN_MOUNTS = ("unshare", "--mount")
Completed = subprocess.CompletedProcess[str]
ON_PYTHON_3_12 = {"python_version": "3.12", "python_full_version": "3.12.9"}


def travelling() -> list[str]:
    """The files of a checkout that reach the image's builder."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    return [line[1:] for line in lines if line.startswith("!")]


def files_in(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.mark.long
def test_nothing_travels_but_what_the_wheel_is_made_of(wheel: Path, tmp_path: Path) -> None:
    assert set(travelling()) == {"clusterproof", "pyproject.toml", "README.md"}
    whole = clone_of(ROOT, tmp_path / "whole")
    part = tmp_path / "part"
    part.mkdir()
    for name in travelling():
        copy = shutil.copytree if (whole / name).is_dir() else shutil.copy
        copy(whole / name, part / name)
    assert files_in(wheel_of(part, tmp_path / "of-part")) == files_in(wheel)


def test_it_has_all_that_the_suite_needs_each_in_one_version() -> None:
    lines = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    assert all(re.fullmatch(r"[\w.+!-]+", version) for version in pinned.values())
    assert list(pinned) == sorted(pinned)
    needed = {}
    waiting = [Requirement("clusterproof[notify]")]
    while waiting:
        dependency = waiting.pop()
        for text in metadata.requires(dependency.name) or ():
            requirement = Requirement(text)
            extras = dependency.extras or {""}
            if requirement.marker and not any(
                requirement.marker.evaluate({**ON_PYTHON_3_12, "extra": extra}) for extra in extras
            ):
                continue
            name = canonicalize_name(requirement.name)
            assert requirement.specifier.contains(pinned[name], prereleases=True), text
            if name not in needed:
                needed[name] = requirement
                waiting.append(requirement)
    assert set(needed) == set(pinned)


def test_it_runs_as_nobody_and_as_the_manifests_have_it() -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", INSTRUCTIONS, re.MULTILINE)
    pods = {document["kind"]: document for document in yaml.safe_load_all((FOLDER / "gate.yaml").read_text())}
    spec = pods["Deployment"]["spec"]["template"]["spec"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == tuple(map(int, user))
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("label", ["title", "description", "version"])
def test_it_says_what_it_is(label: str) -> None:
    assert f"org.opencontainers.image.{label}=" in INSTRUCTIONS


def test_its_base_is_named_once_and_may_be_given_by_its_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", INSTRUCTIONS, re.MULTILINE)
    assert set(bases) == {"${BASE}"}
    assert re.search(r"^ARG BASE=python:\d+\.\d+-slim$", INSTRUCTIONS, re.MULTILINE)


@pytest.fixture(scope="module")
def run_in_image() -> Iterator[Callable[[str], Completed]]:
    """Run the image's command as pods do, with some arguments."""
    with tempfile.TemporaryDirectory(prefix="image-") as folder:  # podman takes no path longer than 50
        podman = ["podman", f"--root={folder}/store", f"--runroot={folder}/run"]
        podman += [f"--storage-driver={storage_driver(folder)}", "--events-backend=none"]
        succeeds(*OWN_MOUNTS, *podman, "import", "--quiet", str(base_system(Path(folder))), BASE)
        options = ["--isolation=chroot", "--network=host", "--layers=false", f"--build-arg=BASE={BASE}"]
        succeeds(
            *OWN_MOUNTS, *podman, "build", *options, "--file=integrations/kubernetes/Dockerfile", f"--tag={IMAGE}", "."
        )

        def run(arguments: str) -> Completed:
            command = [*OWN_MOUNTS, "sh", "-ec", RUN, "sh", *podman]
            environment = {**os.environ, "ARGUMENTS": arguments}
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        yield run


def storage_driver(folder: str) -> str:
    """The driver that copies no layer, unless this machine's own files are layers already."""
    kind = subprocess.run(["stat", "--file-system", "--format=%T", folder], capture_output=True, text=True, check=True)
    return "vfs" if kind.stdout.strip() == "overlayfs" else "overlay"


def base_system(folder: Path) -> Path:
    """An archive of Debian's smallest system with a CPython, whose pip trusts this machine's certificates."""
    given, root, archive = installed.folder("fresh_nodes"), folder / "root", folder / "base.tar"
    succeeds("cp", "-a", str(given / "bookworm"), str(root))
    (release,) = (given / "given/root/clusterproof").glob("cpython-*.tar.gz")
    succeeds("tar", "-xzf", str(release), "-C", str(root / "usr/local"), "--strip-components=1")
    shutil.copy(os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"), root / "etc/authorities.crt")
    (root / "etc/pip.conf").write_text("[global]\ncert = /etc/authorities.crt\n")
    succeeds("tar", "-cf", str(archive), "-C", str(root), ".")
    return archive


def succeeds(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@needs_podman
@installed.needs("fresh_nodes")
@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        ("version", 0, "clusterproof 0.1.0"),
        ("gate agent --help", 0, "agent [OPTION...]"),
        ("check demo --no-report", 1, "FIT                2 of 16 nodes"),
    ],
)
def test_it_is_built_and_runs_as_nobody_without_a_network_on_a_root_that_is_read_only(
    run_in_image: Callable[[str], Completed], arguments: str, status: int, line: str
) -> None:
    done = run_in_image(arguments)
    assert done.returncode == status, done.stdout + done.stderr
    assert line in done.stdout


WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "image.yml").read_text())
STEPS = WORKFLOW["jobs"]["publish"]["steps"]


def step(key: str, start: str) -> dict[str, Any]:
    return next(dict(entry) for entry in STEPS if entry.get(key, "").startswith(start))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", 1),
        ("clusterproof", 1),
        ("somebody/clusterproof", 1),  # the registry is another matter
        ("example.com/clusterproof:0.1.0", 1),
        ("example.com:5000/team/clusterproof", 0),
        ("example.com/clusterproof", 0),
    ],
)
def test_it_is_published_under_the_name_that_somebody_gave_it_and_no_other(
    name: str, expected: int, tmp_path: Path
) -> None:
    environment = {"IMAGE": name, "GITHUB_REF_NAME": "v1.2.3", "GITHUB_ENV": str(tmp_path / "env")}
    command = ["bash", "-e", "-c", step("name", "Name")["run"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expected
    assert done.stderr == (f"{UNNAMED.format(name)}\n" if expected else "")
    registry = name.partition("/")[0]
    assert expected or (tmp_path / "env").read_text() == f"REGISTRY={registry}\nVERSION=1.2.3\n"


def test_what_is_published_was_run_before_and_what_is_signed_is_what_was_pushed() -> None:
    jobs = WORKFLOW["jobs"]
    assert (jobs["publish"]["needs"], jobs["publish"]["if"]) == ("build", "github.ref_type == 'tag'")
    pushed, signed = step("uses", "docker/build-push-action"), step("name", "Sign")
    assert (pushed["with"]["sbom"], pushed["with"]["push"]) == (True, True)
    assert signed["env"]["DIGEST"] == f"${{{{ steps.{pushed['id']}.outputs.digest }}}}"
    assert '"$IMAGE@$DIGEST"' in signed["run"]
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"contents": "read", "id-token": "write"}


def test_what_publishes_runs_nobodys_newest_and_shows_its_own_token_to_no_registry() -> None:
    every = [entry for job in WORKFLOW["jobs"].values() for entry in job["steps"]]
    used = [entry["uses"] for entry in every if "uses" in entry]
    assert [entry for entry in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", entry)] == []
    assert {entry["with"]["persist-credentials"] for entry in every if "checkout" in entry.get("uses", "")} == {False}
    login = step("uses", "docker/login-action")["with"]
    assert (login["registry"], login["password"]) == ("${{ env.REGISTRY }}", "${{ secrets.REGISTRY_TOKEN }}")
