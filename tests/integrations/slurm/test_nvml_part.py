"""The part of nvidia-ml-py that the prolog caches: it reports what the whole library reports, and is refreshed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import standby
from clusterproof.integrations.slurm.standby import MADE_BY, RECORD, keep_part, part_of
from clusterproof.integrations.slurm.state import State
from clusterproof.plugins.agent.program import files
from tests.faults import BY_NAME
from tests.integrations.slurm.calls import state_in
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_p5, with_whole_machine

PROGRAM = """
import json, sys
from clusterproof.integrations.slurm.standby import keep_part, part_of
from clusterproof.integrations.slurm.standby import StandBy
from clusterproof.integrations.slurm.state import State
from clusterproof.plugins.agent.program import ProbeOptions
state = State("/var/lib/state", "/run/state")
state.prepare()
keep_part(state)
for nvml in (b"", part_of(state)):
    here = StandBy(nvml)
    here.begin(["nvml"], ProbeOptions(collector_s=30.0))
    collector = here.evidence("gpu001", 100.0).collectors["nvml"]
    collector.value.pop("init_s", None)
    print(json.dumps([bool(nvml), collector.status.value, collector.value]))
"""


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = state_in(tmp_path / "state")
    state.prepare()
    keep_part(state)
    assert part_of(state)
    return state


@needs_nodes
@pytest.mark.parametrize("fault", ["", "a GPU that is lost", "an NVLink that is down"])
def test_it_reports_of_the_gpus_what_all_of_nvidia_ml_py_reports(fault: str) -> None:
    image = BY_NAME[fault].put(healthy_p5()) if fault else healthy_p5()
    with entered(with_whole_machine(image), "gpu001") as node:
        ran = node.run([sys.executable, "-c", PROGRAM])
    whole, part = (json.loads(line) for line in ran.stdout.decode().splitlines())
    assert (whole[0], part[0]) == (False, True)
    assert whole[1:] == part[1:]
    assert whole[1] == "read"


def test_what_was_made_of_another_nvidia_ml_py_or_probe_is_not_used(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("NVML_SUCCESS = 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert part_of(state) == b""
    monkeypatch.undo()
    assert part_of(state)
    monkeypatch.setattr(standby, "MADE_BY", (*MADE_BY, "run.py"))
    assert part_of(state) == b""


@pytest.mark.parametrize("text", ["", "{", "{}", '{"of": "MADE"}', '{"of": "MADE", "code": 1}'])
def test_a_record_that_is_broken_is_not_used(state: State, text: str) -> None:
    file = Path(state.folder) / f"{RECORD}.json"
    made_of = json.loads(file.read_text())["of"]
    file.write_text(text.replace("MADE", made_of))
    assert part_of(state) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to give files away")
def test_what_another_user_may_have_put_there_is_not_used(state: State) -> None:
    os.chown(Path(state.folder) / f"{RECORD}.json", 65534, 65534)
    assert part_of(state) == b""


def test_every_file_that_decides_what_it_is_makes_it_anew() -> None:
    read = {name: Path(file).read_text(encoding="utf-8") for name, file in files().items()}
    asking = {name for name, text in read.items() if "\nimport pynvml" in text}
    assert asking
    assert all(name.startswith("nvml") for name in asking)
