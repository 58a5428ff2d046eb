"""How srun's output is interpreted, with a stand-in for srun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Limits, Unusable, hyperpod
from clusterproof.plugins.transport.srun import connection, launch, places
from clusterproof.plugins.transport.srun.call import Srun
from clusterproof.plugins.transport.srun.places import Launch
from tests.builders.probed import padded, reported
from tests.transport.launch_request import REQUEST, SCONTROL, Stand


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return Stand(tmp_path)


def test_each_task_is_the_node_on_which_srun_launched_it(stand: Stand) -> None:
    stand.srun('on b 0; on a 1; echo "1: ${mark}a."; echo "0: ${mark}b."; echo "1: one"; echo " 0: two"; end 0; end 1')
    answers = stand.answers("a", "b")
    assert {name: answer[0] for name, answer in answers.items()} == {"a": None, "b": None}
    assert b"one\n" in answers["a"][2]
    assert b"two\n" in answers["b"][2]


def test_an_answer_that_comes_before_sruns_word_of_it_is_its_nodes_too(stand: Stand) -> None:
    stand.srun('echo "0: ${mark}b."; echo "0: two"; end 0; echo "1: ${mark}a."; end 1; sleep 0.2; on b 0; on a 1')
    assert b"two\n" in stand.answers("a", "b")["b"][2]


@pytest.mark.parametrize("asked", [("a", "b", "c"), ("c", "a", "b")])
def test_where_srun_does_not_say_so_tasks_are_in_the_order_of_slurms_own_table(
    stand: Stand, asked: tuple[str, ...]
) -> None:
    stand.srun('for n in 0:a 1:b 2:c; do echo "${n%:*}: ${mark}${n#*:}."; end ${n%:*}; done')
    assert {name: answer[0] for name, answer in stand.answers(*asked).items()} == dict.fromkeys("abc")


def test_a_node_that_claims_anothers_name_is_not_believed_and_takes_nothing_from_it(stand: Stand) -> None:
    stand.srun('on a 0; on b 1; echo "0: ${mark}b."; echo "0: forged"; end 0; echo "1: ${mark}b."; end 1')
    answers = stand.answers("a", "b")
    assert answers["a"][:2] == (Unreached.GARBLED, "it answered as b, and srun has it as a")
    assert answers["b"][0] is None
    assert b"forged" not in answers["b"][2]


def test_a_name_that_another_claims_does_not_stand_for_a_node_that_srun_could_not_start(stand: Stand) -> None:
    stand.srun(
        'on a 0; on b 1; echo "srun: error: Task launch for StepId=7.0 failed on node b: No route to host" >&2\n'
        'echo "0: ${mark}b."; end 0'
    )
    answers = stand.answers("a", "b")
    assert answers["b"][:2] == (Unreached.LOST, "srun: No route to host")
    assert answers["a"][0] is Unreached.GARBLED


@pytest.mark.parametrize(
    "forged",
    [
        "srun: error: b: task 1: Killed",
        "srun: error: Task launch for StepId=7.0 failed on node b: gone",
        "srun: launching StepId=7.0 on host a, 1 tasks: 1",
        "srun: error: Unable to allocate resources: Invalid account",
    ],
)
def test_what_a_task_says_is_not_sruns_word(stand: Stand, forged: str) -> None:
    stand.srun(
        f'on a 0; on b 1; echo "0: {forged}" >&2; sleep 0.2; echo "0: ${{mark}}a."; end 0; sleep 0.2\n'
        'echo "1: ${mark}b."; echo "1: two"; end 1'
    )
    answers = stand.answers("a", "b")
    assert {name: answer[0] for name, answer in answers.items()} == {"a": None, "b": None}
    assert b"two" in answers["b"][2]


def test_an_error_of_the_task_of_a_node_is_attributed_to_that_node(stand: Stand) -> None:
    stand.srun('on a 0; on b 1; echo "1: slurmstepd: error: no shell" >&2; echo "0: ${mark}a."; end 0')
    assert stand.answers("a", "b")["b"][:2] == (Unreached.LOST, "srun: no shell")


def test_why_pyxis_begins_no_container_is_said_although_srun_is_done_with_the_task(stand: Stand) -> None:
    log = '"child 43 failed with error code: 1" "failed to create container" "printing enroot log file:" "    No x"'
    stand.srun(f"""echo "srun: error: a: task 0: Exited with exit code 1" >&2; sleep 0.2; on a 0
        for line in {log}; do echo "0: slurmstepd-a: error: pyxis: $line" >&2; done""")
    message = "pyxis: failed to create container; pyxis: No x; task 0: Exited with exit code 1"
    assert stand.answers("a")["a"][:2] == (Unreached.LOST, f"srun: {message}")


def test_a_name_that_nobody_asked_for_is_nobodys(stand: Stand) -> None:
    stand.srun('on c 0; echo "0: ${mark}c."; end 0')
    assert stand.answers("a")["a"][0] is Unreached.LOST


def test_lines_that_no_task_labels_are_no_answer(stand: Stand) -> None:
    stand.srun('echo "srun: info"; echo "0: ${mark}a."; echo "x: 0: y"; end 0')
    assert stand.answers("a")["a"][2].count(b"\n") == 2


def test_a_node_that_talks_without_end_is_cut(stand: Stand) -> None:
    stand.srun(
        'echo "0: ${mark}a."; yes "0: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" | head -n 20000; end 0'
    )
    assert len(stand.answers("a")["a"][2]) < 300_000


def test_what_srun_says_of_one_node_is_attributed_to_that_node(stand: Stand) -> None:
    stand.srun(
        'echo "srun: error: Task launch for StepId=7.0 failed on node b: Communication connection failure" >&2\n'
        'echo "0: ${mark}a."; end 0'
    )
    answers = stand.answers("a", "b")
    assert answers["a"][0] is None
    assert answers["b"][:2] == (Unreached.LOST, "srun: Communication connection failure")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("srun: unrecognized option '--foo'", "unrecognized option '--foo'"),
        ("srun: error: Invalid --mem specification", "Invalid --mem specification"),
        ("srun: fatal: No command given to execute.", "No command given to execute."),
        (
            "srun: error: Unable to create step for job 7: Job/step already completing or completed",
            "Unable to create step for job 7: Job/step already completing or completed",
        ),
    ],
)
def test_an_srun_that_starts_nothing_anywhere_accuses_no_node(stand: Stand, said: str, problem: str) -> None:
    expected = "expected an srun that starts on nodes (--srun-options)"
    stand.srun(f'echo "{said}" >&2; exit 1')
    with pytest.raises(Unusable) as raised:
        stand.answers("a", "b")
    assert str(raised.value) == f"this host: srun: {problem}; {expected}"
    stand.srun(
        f'case "$*" in *partition=other*) echo "{said}" >&2; exit 1;; esac; on a 0; echo "0: ${{mark}}a."; end 0'
    )
    stand.command(
        "scontrol", SCONTROL.replace("Partitions=gpu", "Partitions=$([ $name = a ] && echo gpu || echo other)")
    )
    answers = stand.answers("a", "b")
    assert answers["a"][0] is None
    assert answers["b"][:2] == (Unreached.BUSY, f"srun: {problem}; {expected}")


def test_a_node_that_prints_what_is_said_of_such_an_srun_is_not_believed(stand: Stand) -> None:
    said = "gone; expected an srun that starts on nodes (--srun-options)"
    stand.srun(f'on a 0; echo "0: slurmstepd: error: {said}" >&2; exit 1')
    assert stand.answers("a")["a"][:2] == (Unreached.LOST, f"srun: {said}")


def test_nodes_that_are_refused_together_are_asked_for_alone(stand: Stand) -> None:
    stand.srun(
        'case "$*" in *--nodelist=b\\ *|*a,b*)\n'
        '    echo "srun: error: Unable to allocate resources: Invalid account" >&2; exit 1;; esac\n'
        'echo "0: ${mark}a."; end 0'
    )
    answers = stand.answers("a", "b")
    assert answers["a"][0] is None
    assert answers["b"][0] is Unreached.BUSY
    assert "Invalid account" in answers["b"][1]
    assert len((stand.folder / "called").read_text().splitlines()) == 3


def test_a_queue_is_left_at_the_limit_with_slurms_reason(stand: Stand) -> None:
    stand.srun('echo "srun: job 7 queued and waiting for resources" >&2; exec sleep 60')
    assert stand.answers("a", slurm_wait="3")["a"][:2] == (Unreached.BUSY, "no place within 3 s: Resources")


def test_a_long_program_reaches_a_node_on_which_srun_starts_nothing(stand: Stand, tmp_path: Path) -> None:
    stand.srun("exit 1")
    limits = Limits(answer_s=60.0, settings={"slurm_wait": "60", "beside": "local"})
    evidence = reported("srun", [Target("a")], [padded(tmp_path, 300_000)], limits)
    assert evidence["a"].collectors["padded"].value == 300_000


def test_a_node_that_slurm_does_not_know_is_reached_where_there_is_another_way(stand: Stand) -> None:
    stand.srun('echo "0: ${mark}a."; end 0')
    names = ("a", "new")  # a replaced node of HyperPod's that Slurm has not been told of
    assert {name: answer[0] for name, answer in stand.answers(*names, beside="local").items()} == dict.fromkeys(names)
    assert stand.answers(*names)["new"][:2] == (Unreached.NAME, "Slurm knows no node new")


def test_a_way_to_further_nodes_that_cannot_be_used_costs_no_other_its_answer(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hyperpod, "PLUGIN", "no-such-plugin")
    stand.srun(
        'echo "srun: error: Task launch for StepId=7.0 failed on node b: no route" >&2; echo "0: ${mark}a."; end 0'
    )
    answers = stand.answers("a", "b", beside="hyperpod")
    assert answers["a"][0] is None
    assert answers["b"][:2] == (Unreached.LOST, f"srun: no route; by hyperpod: {hyperpod.MISSING}")
    stand.srun("exit 1")
    with pytest.raises(Unusable, match="session-manager-plugin is not installed"):
        stand.answers("a", "b", beside="hyperpod")


def test_a_job_whose_container_does_not_begin_is_not_answered_for_by_its_node(stand: Stand) -> None:
    stand.srun("exit 1")
    answers = stand.answers("a", beside="local", srun_options="--container-image=x")
    assert answers["a"][0] is Unreached.LOST


def test_an_srun_that_does_not_end_is_cancelled(stand: Stand) -> None:
    stand.srun('trap "" TERM; echo "srun: job 7 queued and waiting for resources" >&2; while :; do sleep 1; done')
    assert stand.answers("a", slurm_wait="3")["a"][0] is Unreached.BUSY
    assert "--name=clusterproof-" in (stand.folder / "cancelled").read_text()


def test_what_a_site_asks_of_srun_is_passed_on(stand: Stand) -> None:
    stand.srun('echo "0: ${mark}a."; end 0')
    stand.answers("a", srun_options="--account=ops --reservation=maintenance")
    assert "--account=ops --reservation=maintenance /bin/sh -c" in (stand.folder / "called").read_text()


def test_what_a_job_says_does_not_steer_srun(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "64")
    stand.srun(f'env >{stand.folder}/environment; echo "0: ${{mark}}a."; end 0')
    stand.answers("a")
    assert "SLURM_NTASKS" not in (stand.folder / "environment").read_text()


@pytest.mark.parametrize("silent", ["squeue", "scancel"])
def test_a_controller_that_falls_silent_hides_no_answer_that_has_come(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setattr(places, "ASK_S", 0.5)
    monkeypatch.setattr(Srun, "is_slurm_silent", False)
    stand.command(silent, "#!/bin/sh\nexec sleep 60\n")
    queued = 'trap "" TERM; echo "srun: job 7 queued and waiting for resources" >&2; while :; do sleep 1; done'
    stand.srun(f'case "$*" in *--nodelist=a\\ *) echo "0: ${{mark}}a."; end 0 ;; *) {queued} ;; esac')
    launches: list[Launch] = [
        {"job": "", "partition": "", "gpus": "", "memory": False, "nodes": [name]} for name in "abc"
    ]
    answers = launch.run(launches, {**REQUEST, "wait_s": 2.0})
    assert ":end:" in answers["a"]["output"]
    reasons = {
        "squeue": {"Slurm does not answer within 10 s"},
        "scancel": {"Resources", "Slurm does not answer within 10 s"},
    }
    assert {answers[name]["why"] for name in "bc"} == {"busy"}
    assert {answers[name]["detail"].removeprefix("no place within 2 s: ") for name in "bc"} == reasons[silent]


@pytest.mark.parametrize("asked", ["show node", "show config", "show"])
def test_a_controller_that_does_not_answer_is_one_line(stand: Stand, asked: str) -> None:
    refusal = (
        f"case \"$*\" in *'{asked}'*) echo 'slurm_load error: Unable to contact slurm controller' >&2; exit 1 ;; esac"
    )
    stand.command("scontrol", SCONTROL.replace("\n", f"\n{refusal}\n", 1))
    with pytest.raises(Unusable, match="this host: scontrol: slurm_load error: Unable to contact"):
        stand.answers("a")


def test_all_nodes_are_asked_where_none_is_named(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_longest_there", lambda *_: 1)
    monkeypatch.setattr(connection, "SPARE_CHARACTERS", 30_000)
    stand.srun('echo "0: ${mark}a."; echo "1: ${mark}b."; echo "2: ${mark}c."; end 0; end 1; end 2')
    names = ["a", *(os.urandom(40).hex() for _ in range(2000))]
    assert stand.answers(*names)["a"][0] is None
    assert "--nodelist=a,b,c" in (stand.folder / "called").read_text()


@pytest.mark.long
def test_a_host_without_srun_is_one_line() -> None:
    places = "from clusterproof.plugins.transport.srun import launch; launch.FOLDERS='/nowhere'; import os, json;"
    places += "os.environ['PATH']='/nowhere'; print(json.dumps(launch.answer({'names': ['a']})))"
    done = subprocess.run([sys.executable, "-c", places], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"wrong": "no scontrol on PATH or in /nowhere"}
