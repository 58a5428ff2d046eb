"""Whether slurm.conf names the scripts and lets them work: by its settings, and on a real Slurm."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from clusterproof.integrations.slurm.control import NodeState, parse_config
from clusterproof.integrations.slurm.drains import Drain
from clusterproof.integrations.slurm.installation_lines import LineStatus
from clusterproof.integrations.slurm.settings import HealthCheck, Settings
from clusterproof.integrations.slurm.slurm_conf import (
    SlurmReport,
    lines_of,
    names_ours,
    why_nobody_resumes,
)
from tests.builders.samples import sample
from tests.faults import BY_NAME
from tests.integrations.slurm.installation import marked, output_of, run_script
from tests.integrations.slurm.scripts import DRAIN, NAMES, SCRIPTS, Scripted, eventually, lines, scripted
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_cpu, healthy_p5
from tests.testbed.slurm_version import IN_TURN

IDLE = NodeState(frozenset({"IDLE"}), "", ("gpu",))
DRAINS = Settings(mode="drain")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A correct slurm.conf that names the three scripts beside this Python."""
    home = tmp_path / "bin"
    home.mkdir()
    (home / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(home / "python"))
    named = {}
    for keyword, name in NAMES.items():
        script = home / f"clusterproof-{name}"
        script.write_text((SCRIPTS / script.name).read_text())
        script.chmod(0o755)
        named[keyword] = str(script)
    return {
        **named,
        "SLURM_VERSION": "24.11.5",
        "SlurmdUser": "root(0)",
        "PrologFlags": "Alloc,Contain",
        "HealthCheckInterval": "300 sec",
        "HealthCheckNodeState": "ANY",
        "PrologEpilogTimeout": "65534",
        "BatchStartTimeout": "10 sec",
        "MessageTimeout": "10 sec",
    }


def to_mend(config: Mapping[str, str], settings: Settings = DRAINS, node: NodeState | None = IDLE) -> list[str]:
    place = SlurmReport(config, node, "" if node else "scontrol show node: Node gpu001 not found")
    return [
        " ".join(f"{line.label} {line.text}".split())
        for line in lines_of("gpu001", place, settings)
        if line.mark is LineStatus.MEND
    ]


def test_a_slurm_conf_that_fits_has_nothing_to_mend(config: dict[str, str]) -> None:
    assert to_mend(config) == []
    assert why_nobody_resumes(SlurmReport(config, IDLE), DRAINS) == ""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"SlurmdUser": "slurm(64030)"}, "scripts SlurmdUser is slurm(64030); expected root, who may "),
        ({"PrologEpilogTimeout": "10"}, "Prolog PrologEpilogTimeout is 10 s; expected 15 s or more, or none"),
        ({"PrologTimeout": "8 sec"}, "Prolog PrologTimeout is 8 s; expected 15 s or more, or none"),
        ({"EpilogTimeout": "8"}, "Epilog EpilogTimeout is 8 s; expected 15 s or more, or none"),
        ({"BatchStartTimeout": "5 sec"}, "Prolog BatchStartTimeout is 5 s; expected 10 s or more, "),
        ({"MessageTimeout": "5 sec"}, "Prolog MessageTimeout is 5 s; expected 10 s or more, "),
        ({"HealthCheckInterval": "0 sec"}, "HealthCheckInterval 0: it never runs; expected 300"),
        ({"HealthCheckInterval": "3600 sec"}, "HealthCheckInterval 3600 sec: a prolog and an epilog drain nothing"),
        ({"HealthCheckInterval": "7200 sec"}, "HealthCheckInterval 7200 sec: a prolog and an epilog drain nothing"),
        ({"HealthCheckNodeState": "IDLE,CYCLE"}, "HealthCheckNodeState IDLE,CYCLE: it does not run on a node in use, "),
        ({"HealthCheckNodeState": "IDLE,MIXED"}, "HealthCheckNodeState IDLE,MIXED: it does not run on a node in use, "),
        ({"HealthCheckNodeState": "START_ONLY"}, "HealthCheckNodeState START_ONLY: it does not run on a node in use, "),
        ({"HealthCheckTimeout": "30 sec"}, "HealthCheckProgram HealthCheckTimeout is 30 s; expected 60 s or more"),
        ({"PrologFlags": "Alloc,Contain,RunInJob"}, "PrologFlags Alloc,Contain,RunInJob: prolog and epilog run "),
        ({"Prolog": "/none/prolog"}, "Prolog /none/prolog: there is no such file on this node; expected one, or each "),
        ({"Epilog": "/bin/true"}, "Epilog /bin/true, which does not name clusterproof-epilog; expected it there"),
        ({"Prolog": "", "Epilog": "", "HealthCheckProgram": ""}, "Prolog not set; expected the path of clusterproof-"),
    ],
)
def test_what_does_not_fit_is_to_be_mended(config: dict[str, str], changed: dict[str, str], expected: str) -> None:
    mends = to_mend({**config, **changed})
    assert [line for line in mends if line.startswith(expected)], mends


def test_a_script_that_is_left_out_on_purpose_is_nothing_to_mend(config: dict[str, str]) -> None:
    assert to_mend({**config, "Epilog": ""}) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"HealthCheckInterval": "3540 sec"},
        {"HealthCheckNodeState": "ALLOC,IDLE,MIXED"},
        {"HealthCheckTimeout": "60 sec"},
        {"Prolog": "", "Epilog": "", "HealthCheckInterval": "7200 sec", "HealthCheckNodeState": "IDLE"},
    ],
    ids=["over within the hour", "every state by its name", "Slurm's own limit", "no other script relies on it"],
)
def test_a_health_check_that_comes_soon_enough_is_nothing_to_mend(
    config: dict[str, str], changed: dict[str, str]
) -> None:
    assert to_mend({**config, **changed}) == []


def test_where_nothing_is_drained_a_health_check_may_come_late(config: dict[str, str]) -> None:
    late = {**config, "HealthCheckInterval": "7200 sec", "HealthCheckNodeState": "IDLE"}
    assert to_mend(late, Settings()) == []


@pytest.mark.parametrize("keyword", ["Prolog", "Prolog[0]", "Prolog[1]"])
def test_a_script_is_found_by_name_in_a_folder_and_within_a_script_of_the_sites(
    config: dict[str, str], tmp_path: Path, keyword: str
) -> None:
    folder = tmp_path / "prolog.d"
    folder.mkdir()
    ours = Path(config.pop("Prolog"))
    (folder / "10-site").write_text("#!/bin/sh\n")
    (folder / "50-clusterproof").write_text(f"#!/bin/sh\nexec {ours}\n")
    for file in folder.iterdir():
        file.chmod(0o755)
    assert to_mend({**config, keyword: f"{folder}/*"}) == []
    (folder / "50-clusterproof").chmod(0o644)
    assert to_mend({**config, keyword: f"{folder}/*"}) == [
        f"Prolog {folder}/50-clusterproof cannot be executed; expected a script that can"
    ]


def test_a_script_without_a_folder_is_looked_for_beside_slurm_conf(
    config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Path(config["Prolog"]).with_name("slurm.conf")
    named = {**config, "Prolog": "clusterproof-prolog"}
    assert to_mend({**named, "SLURM_CONF": str(beside)}) == []
    monkeypatch.setenv("SLURM_CONF", str(beside))  # as on a controller whose configuration file is not here
    assert to_mend({**named, "SLURM_CONF": "/etc/slurm/slurm.conf"}) == []
    assert names_ours(named, "Prolog")


def test_a_link_from_elsewhere_that_finds_no_python_is_reported(config: dict[str, str], tmp_path: Path) -> None:
    link = tmp_path / "50-clusterproof"
    link.symlink_to(config["Prolog"])
    mends = to_mend({**config, "Prolog": str(link)})
    assert mends in (
        [f"Prolog {link} finds no Python beside it nor in /opt/clusterproof/bin; expected one, or it gives no verdict"],
        [f"Prolog {link} runs /opt/clusterproof/bin/python; expected {sys.executable}, whose installation this is"],
    )


def test_a_node_that_slurm_does_not_know_is_reported(config: dict[str, str]) -> None:
    assert to_mend(config, node=None)[0].startswith("node scontrol show node: Node gpu001 not found; expected a node ")


@pytest.mark.parametrize(
    ("changed", "settings", "why"),
    [
        ({"HealthCheckProgram": ""}, DRAINS, "HealthCheckProgram is not clusterproof-health-check"),
        ({"HealthCheckInterval": "0 sec"}, DRAINS, "HealthCheckInterval is 0"),
        ({"HealthCheckNodeState": "NONDRAINED_IDLE"}, DRAINS, "HealthCheckNodeState is NONDRAINED_IDLE"),
        ({"HealthCheckNodeState": "ALLOC,CYCLE"}, DRAINS, "HealthCheckNodeState is ALLOC,CYCLE"),
        ({"HealthCheckNodeState": "IDLE,CYCLE"}, DRAINS, ""),
        ({}, Settings(mode="drain", health_check=HealthCheck(resume=False)), "resume = false in the settings"),
    ],
)
def test_where_no_health_check_sees_a_drained_node_nobody_resumes_it(
    config: dict[str, str], changed: dict[str, str], settings: Settings, why: str
) -> None:
    assert why_nobody_resumes(SlurmReport({**config, **changed}, IDLE), settings) == why


def test_what_scontrol_prints_is_read() -> None:
    parsed = parse_config(sample("slurm/gcm-sample-scontrol-show-config-output.txt").text)
    assert parsed["SLURM_VERSION"] == "23.02.2"
    assert parsed["Prolog"] == "/public/slurm/prolog/prologs.sh"
    assert parsed["HealthCheckProgram"] == ""
    assert parsed["HealthCheckInterval"] == "0 sec"


# On a real Slurm

HEALTHY, UNKNOWN = "gpu001", "cpu001"


def _evaluated(cursor: Path) -> str:
    return "evaluated" if cursor.exists() else ""


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    images = {HEALTHY: healthy_p5(HEALTHY), UNKNOWN: healthy_cpu()}
    more = ("HealthCheckInterval=3000", "PrologFlags=Alloc", "SchedulerParameters=nohold_on_prolog_fail")
    with scripted(images, lines(*NAMES.values()), DRAIN, *more, version=request.param) as running:
        for name in images:  # Slurm also runs the health check when a node registers
            eventually(partial(_evaluated, running.state_file(name, "cursor.json")), 300.0)
        yield running


@needs_slurm
def test_it_finds_the_scripts_in_slurm_and_nothing_to_mend(bed: Scripted) -> None:
    ran = run_script(bed.node(HEALTHY), HEALTHY)
    assert marked(ran, "!") == []
    assert marked(ran, "?") == []
    version = bed.bed.output_of("scontrol", "--version").split()[-1]
    for message in (
        f"slurmctld {version} answers\n",
        f"node {HEALTHY} is IDLE, of partition gpu; root here may drain and resume it by scontrol\n",
        "Prolog /etc/slurm/prolog, with the Python of this installation\n",
        "Epilog /etc/slurm/epilog, with the Python of this installation\n",
        "HealthCheckProgram /etc/slurm/health-check, with the Python of this installation\n",
        "HealthCheckInterval 3000 sec, on nodes that are ANY\n",
    ):
        assert message in output_of(ran), message


@needs_slurm
def test_it_drains_nothing_and_remembers_nothing(bed: Scripted) -> None:
    healthy = healthy_p5(HEALTHY)
    before = remembered(bed)
    bed.nvml(HEALTHY, BY_NAME["a GPU that is lost"].put(healthy))
    ran = run_script(bed.node(HEALTHY), HEALTHY)
    bed.nvml(HEALTHY, healthy)
    assert [line for line in marked(ran, "!") if "GPU 3: the driver says GPU_IS_LOST" in line]
    assert bed.bed.wait_for(HEALTHY, "IDLE")
    assert bed.bed.reason(HEALTHY) == ""
    assert remembered(bed) == before


def remembered(bed: Scripted) -> dict[str, str]:
    """Each record on the healthy node."""
    return {path.name: path.read_text() for path in bed.state_file(HEALTHY, "").rglob("*") if path.is_file()}


@needs_slurm
def test_a_node_that_would_stay_drained_for_ever_is_reported_before(bed: Scripted) -> None:
    """The warning is true: once drained by its prolog, no health check resumes the node."""
    ran = run_script(bed.node(UNKNOWN), UNKNOWN)
    assert [line for line in marked(ran, "?") if "a drained node is resumed only once every check" in line]
    reason = "clusterproof: host.no_oom_kill: by hand"
    record = json.dumps(Drain("health-check", "", (), reason, None, 1.0, is_reported=True).to_json())
    folder = bed.state_file(UNKNOWN, "drained")
    folder.mkdir(mode=0o700)
    (folder / "health-check.json").write_text(record)
    bed.bed.output_of("scontrol", "update", f"NodeName={UNKNOWN}", "State=DRAIN", f"Reason={reason}")
    for _ in range(2):
        bed.node(UNKNOWN).run(["/etc/slurm/health-check"], env={"SLURMD_NODENAME": UNKNOWN}, timeout=600)
    assert bed.bed.state(UNKNOWN) == "IDLE+DRAIN"
    assert "stays drained: 0 fail, 3 incomplete" in bed.logged(UNKNOWN)
    assert "could not be evaluated, twice" in bed.logged(UNKNOWN)
