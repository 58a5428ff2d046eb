"""The image of the gate, as far as it can be told without building it: what travels, what is in it, whose it is."""

from __future__ import annotations

import re
import shutil
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.builders.wheel import ROOT, clone_of, wheel_of

FOLDER = ROOT / "clusterproof" / "integrations" / "kubernetes"
INSTRUCTIONS = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
ON_PYTHON_3_12 = {"python_version": "3.12", "python_full_version": "3.12.9"}


def travelling() -> list[str]:
    """What of a checkout goes to who builds the image."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    return [line[1:] for line in lines if line.startswith("!")]


def files_in(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_nothing_travels_but_what_the_wheel_is_made_of(tmp_path: Path) -> None:
    assert set(travelling()) == {"clusterproof", "pyproject.toml", "README.md"}
    whole = clone_of(ROOT, tmp_path / "whole")
    part = tmp_path / "part"
    part.mkdir()
    for name in travelling():
        copy = shutil.copytree if (whole / name).is_dir() else shutil.copy
        copy(whole / name, part / name)
    wheels = [wheel_of(source, tmp_path / f"of-{source.name}") for source in (whole, part)]
    assert files_in(wheels[0]) == files_in(wheels[1])


def test_it_has_all_that_the_suite_needs_each_in_one_version() -> None:
    lines = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    assert all(re.fullmatch(r"[\w.+!-]+", version) for version in pinned.values())
    assert list(pinned) == sorted(pinned)
    needed = {}
    waiting = [Requirement("clusterproof[kubernetes,notify]")]
    while waiting:
        one = waiting.pop()
        for text in metadata.requires(one.name) or ():
            requirement = Requirement(text)
            extras = one.extras or {""}
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
    pods = {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "gate.yaml").read_text())}
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
