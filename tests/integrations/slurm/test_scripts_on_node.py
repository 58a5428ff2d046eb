"""The scripts on one fake node, without a Slurm: what they cost, remember, and survive."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterproof.integrations.slurm.state import RUNTIME_FOLDER
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results
from tests.faults import BY_NAME
from tests.integrations.slurm.on_node import node, output_of, script, state
from tests.integrations.slurm.scripts import DRAIN, SCRIPTS, SETTINGS, STATE, eventually
from tests.testbed.image import File, Link, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, healthy_p5, with_file, with_tool
from tests.tiers import each_with_some

pytestmark = needs_nodes
XID = "an Xid of the hardware"
BIN = Path(sys.prefix) / "bin"
NOBODY = 65534
# A passing verdict of this boot and just now, written by a user.
PASSED = """read -r now rest </proc/uptime; read -r boot </proc/sys/kernel/random/boot_id
printf '{"boot_id": "%s", "at": %s, "took_s": 0.1, "checked": 9, "findings": [], "begins": null, "ends": null}' \
    $boot $now >verdict.json"""


def test_its_verdicts_are_those_of_pytest() -> None:
    with node(BY_NAME["two GPUs lost at once"].put(healthy_p5())) as running:
        script(running)
        command = [str(BIN / "clusterproof"), "--cluster", "local", "-m", "prolog", "--results", "/run/results"]
        running.run(command, timeout=600)
        results = read_results(running.root / "run/results")
        verdict = state(running, "verdict")
    applicable = [result for result in results if result.verdict is not Verdict.NOT_APPLICABLE]
    findings = [
        {"check": result.check, "verdict": result.verdict.value, "message": result.message}
        for result in applicable
        if result.verdict is not Verdict.PASS
    ]
    assert len(findings) > 5
    kept: Any = verdict["findings"]
    assert [{key: finding[key] for key in ("check", "verdict", "message")} for finding in kept] == findings
    assert verdict["checked"] == len(applicable)


AT_ONCE = 40
# A Python that counts its starts.
COUNTED = f"""#!/bin/bash
echo started >>/run/pythons
exec -a /opt/counted/bin/python {sys.executable} "$@"
"""


def with_counted_python(image: NodeImage) -> NodeImage:
    image = with_file(image, "/opt/counted/bin/python", File(COUNTED, 0o755))
    image = with_file(image, "/opt/counted/pyvenv.cfg", (Path(sys.prefix) / "pyvenv.cfg").read_text())
    return with_file(image, "/opt/counted/lib", Link(f"{sys.prefix}/lib"))


def at_once(running: Node, occasion: str) -> tuple[int, str]:
    """How many Pythons several simultaneous jobs started, and their output."""
    (running.root / "run/pythons").write_text("")
    loop = f"for job in $(seq {AT_ONCE}); do SLURM_JOB_ID=$job {SCRIPTS}/clusterproof-{occasion} & done; wait"
    output = output_of(running.run(["/bin/sh", "-c", loop], timeout=600))
    return (running.root / "run/pythons").read_text().count("started"), output


def test_one_of_many_jobs_at_once_starts_a_python_unless_time_runs_out() -> None:
    with node(with_counted_python(healthy_p5()), DRAIN + "reuse_s = 0\n", python="/opt/counted") as running:
        pythons, output = at_once(running, "prolog")
        assert pythons == 1 or "no verdict" in output, output
        assert output.count("the verdict of ") == AT_ONCE - 1 or "no verdict" in output, output
        kept = [json.loads(file.read_text()) for file in (running.root / RUNTIME_FOLDER[1:] / "jobs").iterdir()]
        assert len(kept) == AT_ONCE or "no verdict" in output
        assert all(record == kept[0] for record in kept)
        pythons, output = at_once(running, "epilog")
        assert pythons <= 5 or "no verdict" in output, output  # one serves all that came before it
        assert not list((running.root / RUNTIME_FOLDER[1:] / "jobs").iterdir()) or "no verdict" in output


def test_no_job_of_many_at_once_on_a_sick_node_reuses_its_verdict() -> None:
    with node(BY_NAME["a GPU that is lost"].put(healthy_p5()), DRAIN + "reuse_s = 0\n") as running:
        loop = f"for job in $(seq 6); do SLURM_JOB_ID=$job {SCRIPTS}/clusterproof-prolog || echo refused & done; wait"
        ran = running.run(["/bin/sh", "-c", loop], timeout=600)
    output = output_of(ran)
    assert ran.stdout.decode().count("refused\n") == 6 or "no verdict" in output, output


@pytest.mark.parametrize(
    "changes",
    [
        "echo >>/etc/clusterproof/slurm.toml",
        "echo >/etc/clusterproof/policy.toml",
        f"rm /{STATE}/verdict.json",
        "chown 65534 /run/clusterproof",
        "chown 65534 /run/clusterproof/prolog",
        "rm /run/clusterproof/prolog",
        "echo >/run/clusterproof/prolog",
        "ln -s /opt/clusterproof /opt/other",
    ],
)
def test_a_fresh_verdict_starts_no_python_for_as_long_as_nothing_that_it_rests_on_changes(changes: str) -> None:
    image = with_counted_python(with_file(healthy_p5(), "/etc/clusterproof/policy.toml", ""))
    with node(image, DRAIN + 'policy = "/etc/clusterproof/policy.toml"\nreuse_s = 3600\n', "/opt/counted") as running:
        first, fresh = script(running, job="41"), script(running, job="42")
        assert output_of(first).count(" checks in ") == 1, output_of(first)
        assert "the verdict of " in output_of(fresh), output_of(fresh)
        assert (running.root / "run/pythons").read_text().count("started") == 1
        running.run(["/bin/sh", "-c", changes])
        script(running, job="43")
        is_the_same = "other" in changes
        assert (running.root / "run/pythons").read_text().count("started") == (1 if is_the_same else 2)


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


RECORDS = ("verdict", "cursor", "drained/prolog-41", "in_use", "jobs/42", "gaps", "drain_budget")
CORRUPT = ("", "{", "[]", '{"findings": 3, "cursor": [1, 2], "reason": 7}')


@pytest.mark.parametrize(("record", "text"), each_with_some(RECORDS, CORRUPT))
def test_a_state_that_is_corrupt_costs_a_probe_and_nothing_else(record: str, text: str) -> None:
    with node(healthy_p5()) as running:
        file = running.root / STATE / f"{record}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        assert script(running).returncode == 0
        assert script(running, "epilog").returncode == 0


@pytest.mark.parametrize("mode", ["0777", "0755"])
def test_a_user_neither_delays_a_prolog_nor_plants_a_verdict_nor_leads_it_astray(mode: str) -> None:
    """A user who can write to or list the state folder locks it, and puts a link and a verdict into it."""
    with node(BY_NAME["two GPUs lost at once"].put(healthy_p5())) as running:
        running.run(["/bin/sh", "-e", "-c", f"mkdir -p /{STATE}; chmod {mode} /{STATE}; echo {{}} >/etc/precious.json"])
        attack = f"cd /{STATE}; exec 9<.; flock -n 9; {PASSED}; ln -s /etc/precious.json cursor.json; echo; sleep 60"
        user = running.start(["/bin/sh", "-c", attack], user=NOBODY, stdout=subprocess.PIPE)
        assert user.stdout
        user.stdout.readline()
        ran = script(running)
        running.kill(user)
        precious = (running.root / "etc/precious.json").read_text()
    assert ran.returncode == (0 if mode == "0777" else 1)  # only that folder says how many are drained
    assert b"gpu.gpu_answers" in ran.stdout + ran.stderr
    assert ("may be written by others than root; what is remembered is in /run" in output_of(ran)) == (mode == "0777")
    assert precious == "{}\n"


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('mode = "drain', "does nothing: /etc/clusterproof/slurm.toml is not TOML"),
        ('mode = "drain"\npolicy = "/etc/none.toml"\n', "no verdict: NoVerdict: ERROR: '/etc/none.toml'"),
        ('mode = "drain"\nstate = "/proc/none"\n', "what is remembered is in /run/clusterproof, until a reboot"),
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


@pytest.mark.parametrize(
    ("python", "toml"), [("/opt/broken", DRAIN), (sys.prefix, f'{DRAIN}policy = "/etc/none.toml"\n')]
)
def test_an_epilog_that_comes_to_no_verdict_leaves_its_job_to_the_next_health_check(python: str, toml: str) -> None:
    image = with_file(healthy_p5(), "/opt/broken/bin/python", File("#!/bin/sh\nexit 1\n", 0o755))
    text = (SCRIPTS / "clusterproof-epilog").read_text()
    with node(with_file(image, "/etc/slurm/epilog", File(text, 0o755)), toml, python) as running:
        running.run(["mkdir", "-p", "-m", "700", f"{RUNTIME_FOLDER}/jobs"])
        ran = running.run(["/etc/slurm/epilog"], env={"SLURM_JOB_ID": "42", "SLURM_JOB_UID": "1000"})
        left = json.loads((running.root / RUNTIME_FOLDER[1:] / "jobs/42.json").read_text())
    assert "no verdict: " in output_of(ran)
    assert (left["is_unevaluated"], left["uid"]) == (True, "1000")


def test_without_clusterproof_no_job_fails() -> None:
    with node(healthy_p5(), python="/nowhere") as running:
        assert running.run([str(SCRIPTS / "clusterproof-prolog")]).returncode == 0
