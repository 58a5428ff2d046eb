"""The image in which a probe runs where none is named: of anybody who may run a pod on the node, under any name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.transport.kubernetes import visit
from tests.kubernetes.programs import answer_of
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.control_plane import program
from tests.testbed.kubernetes.image import archive
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
LIBRARIES = "/host/usr/lib/x86_64-linux-gnu"


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({}, {"Env": ["LD_PRELOAD=/theirs.so"]}),
        ({}, {"Env": ["LD_AUDIT=/theirs.so"]}),
        ({"/etc/ld.so.preload": "/theirs.so"}, {}),
        ({f"{LIBRARIES}/theirs.so": ""}, {"Volumes": {LIBRARIES: {}}}),
        ({}, {"Env": ["PATH=/theirs.so", "PYTHONPATH=/theirs.so"]}),
        ({}, {"Env": ["BASH_FUNC_echo%%=() { theirs.so; }"]}),
    ],
    ids=[
        "a library",
        "an audit",
        "its list of libraries",
        "a volume over the host's",
        "where programs are",
        "a function",
    ],
)
def test_nothing_of_it_reaches_the_program_that_is_root_on_the_host(
    kubernetes: Bed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    settings: Mapping[str, object],
) -> None:
    name = f"localhost/theirs:{tmp_path.name.lower()}"
    there = {"/pause": program("pause")}
    for number, (path, text) in enumerate(files.items()):
        there[path] = tmp_path / str(number)
        there[path].write_text(text)
    kubernetes.machine.add_image(archive(there, [name], **settings))
    monkeypatch.setattr(visit, "image_on", lambda _: name)
    answer = answer_of("env; echo read")
    assert (answer.unreached, answer.detail) == (None, "")
    assert "theirs.so" not in answer.output.decode()
    assert answer.output.endswith(b"read\n")
