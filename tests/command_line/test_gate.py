"""`clusterproof gate`: the arguments of its two parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.command_line import gate as command
from clusterproof.plugins.command_line import gate_run
from clusterproof.plugins.core.cluster import Target


def arguments_of_round(*arguments: str) -> list[str]:
    option, further = command.parser().parse_known_args(["run", *arguments])
    return gate_run.command(option, further, Path("/kept"))


def test_a_round_evaluates_the_cluster_that_was_named_in_its_region_and_account() -> None:
    arguments = arguments_of_round("eks:prod", "--region", "eu-west-1", "--profile", "ops", "--k8s-gate", "taint")
    assert arguments[:2] == ["check", "eks:prod"]
    assert (arguments[arguments.index("--region") + 1], arguments[arguments.index("--profile") + 1]) == (
        "eu-west-1",
        "ops",
    )


def test_without_them_it_names_neither() -> None:
    assert not {"--region", "--profile"} & set(arguments_of_round("k8s:in-cluster"))


@pytest.mark.parametrize("every", ["", "soon", "nan", "0", "59.5", "3601", "1m"])
@pytest.mark.parametrize("what", [("agent",), ("run", "k8s:in-cluster")])
def test_an_interval_that_is_none_is_one_line_that_names_the_setting(
    capsys: pytest.CaptureFixture[str], what: tuple[str, ...], every: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.gate([*what, f"--every={every}"])
    errors = capsys.readouterr().err
    message = f"argument --every: {every!r}; expected a whole number of seconds from 1 to 3600 (EVERY, everySeconds)"
    assert message in errors
    assert errors.count("\n") == 1
    assert ended.value.code


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Target | str]:
    """What an agent with these arguments expects of its node, or its error message if it exits."""
    seen: list[Target] = []

    def findings_digest(_: object, expected: Target) -> Any:
        seen.append(expected)
        return str

    monkeypatch.setattr(command, "findings_digest", findings_digest)
    monkeypatch.setattr(command, "report_for_ever", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    def of(*arguments: str) -> Target | str:
        status, output = command.gate(["agent", "--unchanged", str(tmp_path / "unchanged"), *arguments])
        return output if status else seen[-1]

    return of


def test_an_agent_expects_of_its_node_what_the_gate_is_told_and_leaves_the_rest_to_the_gate(
    told: Callable[..., Target], tmp_path: Path
) -> None:
    (tmp_path / "clusterproof.toml").write_text("[expect]\ngpus = 4\nefa = 16\n")
    options = "--k8s-startup-taint clusterproof.dev/unproven --expect=gpus=8 -v --instance-type p5.48xlarge"
    expected = told(f"--options={options}")
    assert (expected.expect, expected.instance_type) == ({"gpus": 8, "efa": 16}, "p5.48xlarge")
    assert told("--options=").expect == {"gpus": 4, "efa": 16}
    assert told("--options=--expect=gpus=8 --expect=ib=8").expect == {"gpus": 8, "efa": 16, "ib": 8}


def test_an_expectation_that_is_none_is_one_line(told: Callable[..., str]) -> None:
    message = told("--options=--expect=gpus")
    assert message == "clusterproof gate: --expect 'gpus': 'gpus' is not NAME=NUMBER; expected gpus=8,efa=32\n"


def test_an_agent_has_the_policy_that_the_gate_is_told_and_not_the_one_that_lies_there(
    told: Callable[..., Target], tmp_path: Path
) -> None:
    (tmp_path / "clusterproof.toml").write_text("[expect]\ngpus = 4\n")
    (tmp_path / "training.toml").write_text("[expect]\ngpus = 8\n")
    assert told("--options=--policy=training.toml").expect == {"gpus": 8}
    assert told("--options=--policy training.toml -v").expect == {"gpus": 8}


def test_a_policy_that_an_agent_does_not_have_is_one_line(told: Callable[..., str]) -> None:
    message = told("--options=--policy=/etc/elsewhere.toml")
    assert message.startswith("clusterproof gate: ")
    assert "/etc/elsewhere.toml" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "local"], "'local' is no cluster of Kubernetes; expected k8s:CONTEXT, k8s:in-cluster or eks:NAME"),
        (["wait", "ssh:n1", "--node", "n1"], "'ssh:n1' is no cluster of Kubernetes"),
    ],
)
def test_what_is_no_cluster_of_kubernetes_is_refused_before_the_first_round(words: list[str], message: str) -> None:
    status, text = command.gate(words)
    assert (status, message in text) == (4, True)


def test_an_agent_whose_collectors_have_for_ever_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.gate(["agent", "--probe-timeout", "inf"])
    assert "--probe-timeout is inf; expected 0.1 to 86400 s" in capsys.readouterr().err
