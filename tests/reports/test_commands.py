"""Command lines to copy that carry out an action."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.result import ACTIONS, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import CANNOT_REACH, COMMON_CAUSE, LOOK_AT, NOT_PROVEN
from clusterproof.reports.summary import summary
from clusterproof.reports.to_do import MAX_IDS, Task, commands, short_commands

ARN = "arn:aws:sagemaker:us-east-1:123456789012:cluster/abcdefghij12"
HYPERPOD = {"region": "us-east-1", "arn": ARN}


def cluster(connection: str, settings: Mapping[str, str], *targets: Target, name: str = "prod") -> Cluster:
    return Cluster(name, connection, targets or tuple(Target(f"gpu{n:03d}") for n in range(9)), settings)


def of(action: str, *nodes: str, **more: Any) -> Task:
    return Task(action, nodes, ("row_remap", "no_xid"), **more)


INSTANCES = (
    Target("ip-10-0-0-1", address="sagemaker-cluster:abcdefghij12_workers-i-0123456789abcdef0"),
    Target("ip-10-0-0-2", address="sagemaker-cluster:abcdefghij12_workers-i-0123456789abcdef1"),
)


@pytest.mark.parametrize(
    ("where", "action", "nodes", "line"),
    [
        (
            cluster("srun", {"submit_host": "local"}),
            "replace",
            ("gpu001", "gpu002"),
            "scontrol update nodename='gpu[001-002]' state=drain reason='clusterproof: row_remap, no_xid'",
        ),
        (
            cluster("replay", {"submit_host": "local", "recorded_by": "ssh"}),
            "reset or reboot",
            ("gpu001",),
            "scontrol update nodename=gpu001 state=drain reason='clusterproof: row_remap, no_xid'",
        ),
        (
            cluster("kubernetes", {"kubernetes": "context:prod"}),
            "replace",
            ("gpu001", "gpu003"),
            "kubectl --context=prod cordon gpu001 gpu003",
        ),
        (cluster("kubernetes", {"kubernetes": "in-cluster"}), "reset or reboot", ("gpu1",), None),
        (cluster("kubernetes", {"kubernetes": "in-cluster"}), "reset or reboot", ("gpu001",), "kubectl cordon gpu001"),
        (
            cluster("srun", HYPERPOD | {"submit_host": "hyperpod:x"}, *INSTANCES),
            "reset or reboot",
            ("ip-10-0-0-1", "ip-10-0-0-2"),
            (
                "aws sagemaker batch-reboot-cluster-nodes --region us-east-1 --cluster-name prod "
                "--node-ids i-0123456789abcdef0 i-0123456789abcdef1"
            ),
        ),
        (
            cluster("hyperpod", HYPERPOD | {"profile": "ops"}, *INSTANCES),
            "replace",
            ("ip-10-0-0-2",),
            (
                "aws sagemaker batch-replace-cluster-nodes --region us-east-1 --profile ops --cluster-name prod "
                "--node-ids i-0123456789abcdef1"
            ),
        ),
        (
            cluster("ssm", {"region": "us-east-1"}, Target("a", address="i-0123456789abcdef0")),
            "reset or reboot",
            ("a",),
            "aws ec2 reboot-instances --region us-east-1 --instance-ids i-0123456789abcdef0",
        ),
        (
            cluster("ssh", {}, Target("gpu001", user="ubuntu", port=2222), Target("gpu002", user="ubuntu", port=2222)),
            "reset or reboot",
            ("gpu001", "gpu002"),
            "clush -l ubuntu -o '-p 2222' -w 'gpu[001-002]' 'sudo systemctl reboot'",
        ),
        (cluster("ssh", {}), "replace", ("gpu001",), None),
        (cluster("local", {}), "reset or reboot", ("gpu001",), None),
        (cluster("capture", {}), "reset or reboot", ("gpu001",), None),
    ],
)
def test_an_action_has_a_line_to_copy_in_the_words_of_its_cluster(
    where: Cluster, action: str, nodes: tuple[str, ...], line: str | None
) -> None:
    assert commands(of(action, *nodes), where) == ([line] if line else [])


@pytest.mark.parametrize("action", [*ACTIONS[2:], COMMON_CAUSE, CANNOT_REACH, NOT_PROVEN, LOOK_AT, "call facilities"])
def test_where_no_one_command_is_right_there_is_none(action: str) -> None:
    assert commands(of(action, "gpu001"), cluster("srun", {"submit_host": "local"})) == []


def test_a_pair_a_run_and_a_whole_cluster_have_no_command() -> None:
    where = cluster("srun", {"submit_host": "local"})
    assert not any(commands(of("replace", "gpu001", of_what=what), where) for what in ("pair", "run", "cluster"))


@pytest.mark.parametrize("odd", ["prod\x1b[2J", "prod\nreboot", "prod\u202e"])
def test_no_line_holds_what_a_terminal_would_not_show_as_it_is(odd: str) -> None:
    for where in (
        cluster("replay", {"kubernetes": f"context:{odd}"}),
        cluster("ssm", {"region": odd}, Target("gpu001", address="i-0123456789abcdef0")),
        cluster("ssh", {}, Target("gpu001", user=odd)),
    ):
        assert commands(of("reset or reboot", "gpu001"), where) == []


def test_a_name_that_is_not_plain_keeps_the_line_from_being_printed() -> None:
    for name in ("gpu1; reboot", "-x", "$(id)", "gpu1\nreboot", "a b", "gpu[1-2]", ""):
        where = cluster("srun", {"submit_host": "local"}, Target(name), Target("gpu001"))
        assert commands(of("replace", name, "gpu001"), where) == []


@given(st.text(max_size=40), st.text(min_size=1, max_size=20), st.sampled_from(["submit_host", "kubernetes", "arn"]))
def test_whatever_a_check_and_a_cluster_are_called_is_one_word_to_a_shell(why: str, name: str, setting: str) -> None:
    settings = {setting: f"context:{name}" if setting == "kubernetes" else ARN, "region": name}
    task = Task("replace", ("ip-10-0-0-1",), (why,))
    lines = commands(task, cluster("x", settings, INSTANCES[0], name=name))
    assert len(lines) == 1 or not (why + name).isprintable()
    for line in lines:
        arguments = shlex.split(line)
        assert shlex.join(arguments) == line or "nodename=ip-10-0-0-1" in arguments
        assert len(arguments) <= 9
        assert line.isprintable()


def test_more_nodes_than_one_call_takes_are_several_calls() -> None:
    targets = [Target(f"n{n}", address=f"sagemaker-cluster:abcdefghij12_workers-i-{n:017x}") for n in range(30)]
    lines = commands(of("replace", *(target.name for target in targets)), cluster("hyperpod", HYPERPOD, *targets))
    assert [line.count(" i-") for line in lines] == [MAX_IDS, 30 - MAX_IDS]


def test_what_would_fill_the_screen_is_only_on_the_page() -> None:
    targets = [Target(f"node-{n}.example.org") for n in range(300)]
    where, task = (
        cluster("k", {"kubernetes": "in-cluster"}, *targets),
        of("replace", *(target.name for target in targets)),
    )
    assert short_commands(task, where) == []
    assert len(commands(task, where)) == 1


def test_nobody_reboots_a_node_by_copying_a_line_of_the_demo() -> None:
    where = cluster("replay", {"recorded_by": "ssh"}, name="demo")
    assert commands(of("reset or reboot", "gpu001"), where) == ["# clush -w gpu001 'sudo systemctl reboot'"]


def test_a_command_stays_one_line_on_a_narrow_terminal() -> None:
    results = [Result("gpu.row_remap", f"gpu{n:03d}", Verdict.FAIL, action="replace") for n in (1, 3, 5, 7)]
    results.append(Result("gpu.row_remap", "gpu000", Verdict.PASS))
    lines = [line.text for line in summary(results, PACKAGED, 60, cluster=cluster("srun", {"submit_host": "local"}))]
    line = "scontrol update nodename='gpu[001,003,005,007]' state=drain reason='clusterproof: row_remap'"
    assert lines[:2] == ["REPLACE  gpu[001,003,005,007] (row_remap)", f"         {line}"]


@pytest.mark.long
def test_what_nodes_say_of_themselves_names_nothing_to_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert main(["check", "demo", "-k", "gpu_answers or mixed_instance_types", "--report", str(tmp_path)]) == 1
    command = "clush -w gpu006 'sudo systemctl reboot'"
    assert command in capfd.readouterr().out
    for name in ("summary.md", "summary.txt"):
        assert command in (tmp_path / name).read_text(encoding="utf-8")
    page = unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert command in page
    assert "aws ec2 reboot-instances" not in page
