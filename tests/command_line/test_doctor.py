"""`clusterproof doctor`: what can be reached from here."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from clusterproof.plugins.command_line import doctor
from clusterproof.plugins.command_line.doctor import check_aws, check_slurm, check_ssh, reaches
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.errors import ClusterproofError


@pytest.mark.long
def test_doctor_says_of_each_kind_of_cluster_whether_it_can_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    lines = [line for line in printed[2:] if not line.startswith(" ")]  # longer entries continue under their own column
    assert {line[5:17].strip() for line in lines} == {"local", "ssh:", "slurm:", "k8s:", "ec2:, asg:", "HyperPod"}
    assert {line[:4].strip() for line in lines} <= {"ok", "--"}


def test_keys_and_known_hosts_are_counted(tmp_path: Path) -> None:
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    assert [means.is_there for means in check_ssh({}, tmp_path)] == [False, False]
    (ssh / "id_ed25519").touch()
    (ssh / "known_hosts").write_text("# none\n\ngpu001 ssh-ed25519 AAAA\n")
    keys, hosts = check_ssh({}, tmp_path)
    assert (keys.is_there, keys.detail) == (True, "keys: ~/.ssh/id_ed25519")
    assert (hosts.is_there, hosts.detail) == (True, "1 host key in ~/.ssh/known_hosts")


def test_host_keys_that_the_system_keeps_for_all_users_are_counted(tmp_path: Path) -> None:
    (tmp_path / "ssh_known_hosts").write_text("gpu* ssh-ed25519 AAAA\n")
    _, hosts = check_ssh({}, tmp_path / "home", tmp_path)
    assert (hosts.is_there, hosts.detail) == (True, "1 host key in /etc/ssh/ssh_known_hosts")


def test_a_key_that_the_configuration_names_is_counted(tmp_path: Path) -> None:
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    (ssh / "cluster.pem").touch()
    (ssh / "config").write_text(
        'Host gpu*\n  IdentityFile ~/.ssh/cluster.pem # ours\n  identityfile = "/gone/key"\n  IdentityFile ~/.ssh/%h\n'
    )
    assert next(check_ssh({}, tmp_path)).detail == "keys: ~/.ssh/cluster.pem"


def test_an_agent_that_is_silent_is_said_beside_the_keys_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    monkeypatch.setattr(doctor, "ANSWER_S", 0.1)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").touch()
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        keys = next(check_ssh(os.environ, tmp_path))
    assert (keys.is_there, keys.detail) == (True, "the agent of SSH_AUTH_SOCK does not answer; keys: ~/.ssh/id_rsa")


def test_a_key_whose_name_no_file_can_have_is_none(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"IdentityFile /{'x' * 5000}\nIdentityFile=\n")
    assert not next(check_ssh({}, tmp_path)).is_there


@pytest.mark.parametrize(
    ("answer", "is_there", "message"),
    [
        (None, False, "no scontrol on PATH"),
        ("", False, "did not answer"),
        ("Slurmctld(primary) at head is UP", True, "is UP"),
        ("Slurmctld(primary) at head is DOWN", False, "is DOWN"),
    ],
)
def test_slurm_is_there_where_its_controller_answers(answer: str | None, is_there: bool, message: str) -> None:
    means = check_slurm(lambda: answer)
    assert means.is_there is is_there
    assert message in means.detail


@pytest.mark.long
def test_slurm_is_there_where_only_the_backup_controller_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = [f"ip-10-0-0-{number}.us-west-2.compute.internal" for number in (11, 12)]
    answer = f"Slurmctld(primary) at {hosts[0]} is DOWN\nSlurmctld(backup) at {hosts[1]} is UP"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho '{answer}'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"ok slurm: {' '.join(answer.split())} " in shown


def test_aws_is_not_there_without_credentials_and_says_what_is_missing() -> None:
    def refuse() -> str:
        raise ClusterproofError("no AWS credentials here")

    assert check_aws(refuse).line == "--   ec2:, asg:   no AWS credentials here"


@pytest.mark.long
def test_what_is_missing_comes_with_what_to_do(tmp_path: Path) -> None:
    for means in reaches({"PATH": ""}, tmp_path):
        if means.serves in ("ssh:", "HyperPod"):
            assert "; " in means.detail
            assert not means.is_there
