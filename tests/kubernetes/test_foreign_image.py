"""The image for a probe if none is given: anybody who may run a pod on the node may have named it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.kubernetes import visit
from tests.kubernetes.programs import answer_of
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.control_plane import program
from tests.testbed.kubernetes.images import archive
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
LIBRARIES = "/host/usr/lib/x86_64-linux-gnu"


def run_in(
    kubernetes: Bed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    settings: Mapping[str, object],
) -> None:
    """Have probes run in an image with these files and settings."""
    name = f"localhost/theirs:{tmp_path.name.lower()}"
    there = {"/pause": program("pause")}
    for number, (path, text) in enumerate(files.items()):
        there[path] = tmp_path / str(number)
        there[path].write_text(text)
    kubernetes.machine.add_image(archive(there, [name], **settings))
    monkeypatch.setattr(visit, "image_on", lambda _: name)


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({}, {"Env": ["LD_PRELOAD=/theirs.so"]}),
        ({}, {"Env": ["LD_AUDIT=/theirs.so"]}),
        ({"/etc/ld.so.preload": "/theirs.so"}, {}),
        ({f"{LIBRARIES}/theirs.so": ""}, {"Volumes": {LIBRARIES: {}}}),
        ({}, {"Env": ["PATH=/theirs.so", "PYTHONPATH=/theirs.so"]}),
        ({}, {"Env": ["BASH_FUNC_echo%%=() { theirs.so; }"]}),
        ({}, {"Env": ["LD_SHOW_AUXV=/theirs.so"]}),
    ],
    ids=[
        "a library",
        "an audit",
        "its list of libraries",
        "a volume over the host's",
        "where programs are",
        "a function",
        "what the loader shows of itself",
    ],
)
def test_nothing_of_it_reaches_the_program_that_is_root_on_the_host(
    kubernetes: Bed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    settings: Mapping[str, object],
) -> None:
    run_in(kubernetes, tmp_path, monkeypatch, files, settings)
    answer = answer_of("env; echo read")
    assert (answer.unreached, answer.detail) == (None, "")
    assert "theirs.so" not in answer.output.decode()
    assert answer.output.endswith(b"read\n")


@pytest.mark.parametrize(
    "variables",
    [
        ["LD_LIBRARY_PATH={folder}"],
        ["LD_LIBRARY_PATH=/proc/1/root{folder}"],
        ["LD_DEBUG=files", "LD_DEBUG_OUTPUT=/proc/1/root{folder}/written"],
        ["LD_PROFILE=libc.so.6", "LD_PROFILE_OUTPUT=/proc/1/root{folder}"],
        ["GLIBC_TUNABLES=glibc.rtld.optional_static_tls=9223372036854775807"],
        ["SHELLOPTS=noexec"],
        ["SHELLOPTS=xtrace", "PS4=$(touch {folder}/written)"],
        ["ENV={folder}/libc.so.6", "BASH_ENV={folder}/libc.so.6"],
    ],
    ids=str,
)
def test_by_none_of_its_variables_the_host_loads_or_writes_a_file(
    kubernetes: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: list[str]
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "libc.so.6").write_text("of anybody who may write on the host")
    environment = [entry.replace("{folder}", str(theirs)) for entry in variables]
    run_in(kubernetes, tmp_path, monkeypatch, {}, {"Env": environment})
    answer = answer_of("echo read")
    assert (answer.unreached, answer.detail, answer.output) == (None, "", b"read\n")
    assert [entry.name for entry in theirs.iterdir()] == ["libc.so.6"]


def test_an_image_that_keeps_the_probe_from_running_is_no_evidence_against_the_node(
    kubernetes: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(kubernetes, tmp_path, monkeypatch, {}, {"Env": ["LD_TRACE_LOADED_OBJECTS=1"]})
    answer = answer_of("echo read")
    assert answer.unreached is Unreached.NO_IMAGE
    assert "LD_TRACE_LOADED_OBJECTS" in answer.detail
    assert not unreached_rows()[answer.unreached.value].speaks_against_node, answer
