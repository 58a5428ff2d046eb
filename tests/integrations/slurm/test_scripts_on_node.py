"""The scripts on one fake node, without a Slurm: what they cost, remember, and survive."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import BY_NAME
from tests.integrations.slurm.on_node import DRAIN, node, output_of, script, state
from tests.integrations.slurm.scripts import SCRIPTS, SETTINGS, STATE, eventually
from tests.testbed.image import File
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5, with_file, with_tmpfs, with_tool

pytestmark = needs_nodes
XID = "an Xid of the hardware"
BIN = Path(sys.prefix) / "bin"
NOBODY = 65534
# A verdict that passes, of this boot and just now, written by a user.
PASSED = """read -r now rest </proc/uptime; read -r boot </proc/sys/kernel/random/boot_id
printf '{"boot_id": "%s", "at": %s, "took_s": 0.1, "checked": 9, "findings": [], "begins": null, "ends": null}' \
    $boot $now >verdict.json"""


def test_its_verdicts_are_those_of_pytest() -> None:
    with node(BY_NAME["two GPUs lost at once"].put(healthy_p5())) as running:
        script(running)
        words = [str(BIN / "clusterproof"), "--cluster", "local", "-m", "prolog", "--results", "/run/results"]
        running.run(words, timeout=300)
        results = [json.loads(line) for line in (running.root / "run/results").read_text().splitlines()]
        verdict = state(running, "verdict")
    applicable = [result for result in results if result["verdict"] != "not applicable"]
    found = [
        {"check": result["check"], "verdict": result["verdict"], "message": result["message"]}
        for result in applicable
        if result["verdict"] != "pass"
    ]
    assert len(found) > 5
    assert verdict["findings"] == found
    assert verdict["checked"] == len(applicable)


def test_ten_at_once_cost_one_probe_unless_time_runs_out() -> None:
    with node(healthy_p5()) as running:
        words = f"for job in $(seq 10); do SLURM_JOB_ID=$job {SCRIPTS}/clusterproof-prolog & done; wait"
        said = output_of(running.run(["/bin/sh", "-c", words]))
    assert (0 if "no verdict" in said else 1) <= said.count(" checks in ") <= 1, said


def test_ten_epilogs_at_once_cost_a_probe_or_two_unless_time_runs_out() -> None:
    with node(healthy_p5()) as running:
        words = f"for job in $(seq 10); do SLURM_JOB_ID=$job {SCRIPTS}/clusterproof-epilog & done; wait"
        said = output_of(running.run(["/bin/sh", "-c", words]))
    assert (0 if "no verdict" in said else 1) <= said.count(" checks in ") <= 5  # one serves all that came before it


def test_a_verdict_that_found_a_fault_is_not_taken_for_the_next_job() -> None:
    with node(BY_NAME[XID].put(healthy_p5())) as running:
        assert [script(running).returncode for _ in range(2)] == [1, 1]
        assert output_of(script(running)).count(" checks in ") == 1


POLICY = "/etc/clusterproof/policy.toml"
EXPECTS = 'policy = "/etc/clusterproof/policy.toml"\n'


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (POLICY, "[expect]\ngpus = 9\n"),
        (SETTINGS, DRAIN + 'instance_type = "p4d.24xlarge"\n' + EXPECTS),
        (SETTINGS, DRAIN + 'policy = "/etc/clusterproof/other.toml"\n'),
    ],
    ids=["another policy", "another instance type", "another policy file"],
)
def test_a_verdict_formed_under_other_settings_is_not_taken_for_the_next_job(file: str, text: str) -> None:
    image = with_file(healthy_p5(), POLICY, "[expect]\ngpus = 8\n")
    image = with_file(image, "/etc/clusterproof/other.toml", "[expect]\ngpus = 9\n")
    with node(image, DRAIN + EXPECTS) as running:
        before = [script(running, job=job) for job in ("41", "42")]
        (running.root / file.lstrip("/")).write_text(text)
        after = script(running, job="43")
    assert [ran.returncode for ran in before] == [0, 0], output_of(before[1])
    assert "the verdict of " in output_of(before[1])
    assert after.returncode == 1, output_of(after)
    assert b"_count: " in after.stdout


@pytest.mark.parametrize(
    ("called", "drains"), [("rack7-n3", False), ("gpu001", True)], ids=["as Slurm calls it", "as it calls itself"]
)
def test_a_policy_names_nodes_as_slurm_does(called: str, drains: bool) -> None:
    rule = f'[disabled."gpu.no_xid"]\nreason = "a new driver"\nuntil = 9999-12-31\nnodes = "{called}"\n'
    with node(with_file(BY_NAME[XID].put(healthy_p5()), POLICY, rule), DRAIN + EXPECTS) as running:
        ran = running.run([str(SCRIPTS / "clusterproof-prolog")], env={"SLURMD_NODENAME": "rack7-n3"})
    assert ran.returncode == int(drains), output_of(ran)


@pytest.mark.parametrize(
    ("rule", "drains"),
    [('[disabled."gpu.no_xid"]\nreason = "a new driver"\nuntil = 9999-12-31\n', False), ("[expect]\ngpus = 8\n", True)],
    ids=["no longer checked", "another rule"],
)
def test_what_made_the_last_verdict_fail_is_evaluated_again_by_the_policy_of_today(rule: str, drains: bool) -> None:
    with node(with_file(BY_NAME[XID].put(healthy_p5()), POLICY, ""), DRAIN + EXPECTS) as running:
        before = script(running, job="41")
        (running.root / POLICY.lstrip("/")).write_text(rule)
        after = script(running, job="42")
    assert (before.returncode, after.returncode) == (1, int(drains)), output_of(after)


SLOW_CONTROLLER = """#!/bin/sh
echo "$*" >>/run/scontrol
case $1 in
    show) [ "$(grep -c show /run/scontrol)" -gt 4 ] && state=IDLE+DRAIN reason="Prolog error [root@2026-03-01T08:00:00]"
        printf 'NodeName=%s\\n   State=%s\\n   Reason=%s\\n' "$3" "${state:-IDLE}" "$reason" ;;
esac
"""


def test_the_reason_waits_for_a_controller_that_drains_late_and_is_set_once() -> None:
    with node(with_tool(BY_NAME[XID].put(healthy_p5()), "scontrol", SLOW_CONTROLLER)) as running:
        assert [script(running, "prolog", job).returncode for job in ("41", "42")] == [1, 1]
        log = running.root / "run/scontrol"
        calls = eventually(lambda: text if log.exists() and "update" in (text := log.read_text()) else "")
        assert eventually(lambda: str(state(running, "drained/prolog-41")["is_reported"]).replace("False", ""))
    updates = [line for line in calls.splitlines() if "update" in line]
    assert len(updates) == 1
    assert updates[0].startswith("update NodeName=gpu001 State=DRAIN Reason=clusterproof: gpu.no_xid: Xid 79 ")


def test_an_old_xid_drains_no_node_for_ever() -> None:
    with node(BY_NAME[XID].put(healthy_p5()), DRAIN + "reuse_s = 0\n") as running:
        assert [script(running).returncode for _ in range(3)] == [1, 0, 0]


def test_an_epilog_looks_at_what_the_kernel_has_logged_since_its_own_job_began() -> None:
    with node(healthy_p5()) as running:
        assert script(running, "prolog", "41").returncode == 0
        with (running.root / "dev/kmsg").open("a") as log:
            log.write(
                "3,9000,90000000000,-;NVRM: Xid (PCI:0000:53:00): 79, pid=1, name=a, GPU has fallen off the bus.\n"
            )
        ran = script(running, "epilog", "41")
    assert ran.returncode == 1
    assert b"gpu.no_xid: Xid 79" in ran.stdout
    assert b"(epilog of job 41)" in ran.stdout


@pytest.mark.parametrize("record", ["verdict", "cursor", "drained/prolog-41", "in_use", "jobs/42", "gaps", "room"])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"findings": 3, "cursor": [1, 2], "reason": 7}'])
def test_a_state_that_is_corrupt_costs_a_probe_and_nothing_else(record: str, text: str) -> None:
    with node(healthy_p5()) as running:
        file = running.root / STATE / f"{record}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        assert script(running).returncode == 0
        assert script(running, "epilog").returncode == 0


@pytest.mark.parametrize("mode", ["0777", "0755"])
def test_a_user_neither_delays_a_prolog_nor_plants_a_verdict_nor_leads_it_astray(mode: str) -> None:
    """He may write the state folder or only look into it, locks it, and puts a link and a verdict there."""
    with node(BY_NAME["two GPUs lost at once"].put(healthy_p5())) as running:
        running.run(["/bin/sh", "-e", "-c", f"mkdir -p /{STATE}; chmod {mode} /{STATE}; echo {{}} >/etc/precious.json"])
        attack = f"cd /{STATE}; exec 9<.; flock -n 9; {PASSED}; ln -s /etc/precious.json cursor.json; echo; sleep 60"
        user = running.start(["/bin/sh", "-c", attack], user=NOBODY, stdout=subprocess.PIPE)
        assert user.stdout
        user.stdout.readline()
        ran = script(running)
        running.kill(user)
        precious = (running.root / "etc/precious.json").read_text()
    assert ran.returncode == (0 if mode == "0777" else 1)  # without a memory of its own it only observes
    assert b"gpu.gpu_answers" in ran.stdout + ran.stderr
    assert ("may be written by others than root; nothing is remembered" in output_of(ran)) == (mode == "0777")
    assert precious == "{}\n"


def test_a_disk_that_is_full_drains_nothing_as_nobody_would_resume() -> None:
    image = with_tmpfs(BY_NAME[XID].put(healthy_p5()), "/var/lib/clusterproof", "8k")
    with node(image) as running:
        running.run(["/bin/sh", "-c", "mkdir /var/lib/clusterproof/slurm; cat /dev/zero >/var/lib/clusterproof/full"])
        ran = script(running)
        left = [path.name for path in (running.root / STATE).rglob("*.json*")]
    assert ran.returncode == 0
    assert "verdict is not remembered: No space left on device" in output_of(ran)
    why = "cannot remember it (/var/lib/clusterproof/slurm: No space left on device) and so only observes"
    assert f"would drain, but {why}: clusterproof: gpu.no_xid: Xid 79 " in output_of(ran)
    assert left == []


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('mode = "drain', "does nothing: /etc/clusterproof/slurm.toml is not TOML"),
        ('mode = "drain"\npolicy = "/etc/none.toml"\n', "no verdict: NoVerdict: ERROR: '/etc/none.toml'"),
        ('mode = "drain"\nstate = "/proc/none"\n', "nothing is remembered from job to job"),
        ('mode = "off"\n', ""),
    ],
)
def test_a_wrong_setting_fails_no_job(toml: str, says: str) -> None:
    with node(healthy_p5(), toml) as running:
        ran = script(running)
    assert ran.returncode == 0
    assert says in output_of(ran)


@pytest.mark.parametrize(
    ("python", "limit_s", "says"),
    [
        ("exec sleep 600", 1, "no answer within 1 s"),
        ("exit 1", 60, "it ended with 1"),
        ("kill -9 $$", 60, "it ended with 137"),
    ],
)
def test_a_python_that_hangs_or_breaks_fails_no_job(python: str, limit_s: int, says: str) -> None:
    image = with_file(healthy_p5(), "/opt/broken/bin/python", File(f"#!/bin/sh\n{python}\n", 0o755))
    text = (SCRIPTS / "clusterproof-prolog").read_text().replace("limit_s=9", f"limit_s={limit_s}")
    image = with_file(image, "/etc/slurm/prolog", File(text, 0o755))
    with node(image, python="/opt/broken") as running:
        ran = running.run(["/etc/slurm/prolog"])
    assert ran.returncode == 0
    assert f"clusterproof: prolog: no verdict: {says}" in output_of(ran)


def test_without_clusterproof_no_job_fails() -> None:
    with node(healthy_p5(), python="/nowhere") as running:
        assert running.run([str(SCRIPTS / "clusterproof-prolog")]).returncode == 0
