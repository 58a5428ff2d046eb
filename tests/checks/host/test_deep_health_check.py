"""HyperPod's log of deep health checks on a node: which lines count, and who may have written them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Denied, Node
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.aws.collect_deep_health_check_log import LOG, MAX_CHARACTERS, read
from tests.builders.evaluated import expect, verdict_of
from tests.builders.recordings import boot
from tests.captures.captured import output_of
from tests.testbed.needs import needs_root

CHECK = "host.deep_health_check"
# The forms of SageMaker's documentation.
START = "2024-08-20T21:53:58Z info Executing Hardware stress check with command: stress-ng, and args: [--cpu 32]\n"
DONE = "2024-08-20T21:54:58Z    info    GpuPci Count check success\n"
DCGM = (
    "2024-08-20T22:25:02Z\tinfo\tDCGM diagnostic health summary: dcgmCheckLevel: 0 dcgmVersion: 3.3.7 gpuDriverVersion:"
    " 535.183.01, gpuDeviceIds: [2237] replacementRequired: {} rebootRequired:{}\n"
)
FIT = DCGM.format("false", "false")
EFA = "2024-08-20T22:26:28Z\tinfo\tEFA Loopback check passed for device: rdmap0s29 . Output summary is MaxBw: 58.59\n"
ERROR = "2024-08-20T22:26:29Z\terror\tstress-ng failed\n"


def of_log(log: str, *, is_cut: bool = False, booted: float = 0.0) -> Result:
    """The verdict on a node with this log that booted at this time."""
    running = boot(now=booted + 60.0, uptime_s=60.0)
    return verdict_of(CHECK, deep_health_check_log={"log": log, "is_cut": is_cut}, boot=running)


@pytest.mark.parametrize(
    ("log", "verdict", "message"),
    [
        (START + DONE + FIT + EFA, Verdict.PASS, ""),
        (DONE + FIT + EFA, Verdict.PASS, ""),
        (START + ERROR + DCGM.format("true", "true") + START + DONE + FIT, Verdict.PASS, ""),
        (
            START + DONE + DCGM.format("true", "false"),
            Verdict.FAIL,
            "of 2024-08-20T22:25:02Z requires the node's replacement",
        ),
        (START + ERROR + EFA, Verdict.CONCERN, "2024-08-20T22:26:29Z: stress-ng failed; expected no error"),
        ("", Verdict.NOT_APPLICABLE, "HyperPod has logged no deep health check here"),
        ("nothing of that kind\n", Verdict.INCOMPLETE, "does not show where the last check began"),
    ],
    ids=["all pass", "without its start", "an earlier check", "replacement", "an error", "empty", "another form"],
)
def test_the_last_check_counts(log: str, verdict: Verdict, message: str) -> None:
    expect(of_log(log), verdict, message)


@pytest.mark.parametrize(
    ("booted", "verdict"), [(1724192700, Verdict.CONCERN), (1724192703, Verdict.PASS)], ids=["before", "after"]
)
def test_a_reboot_since_then_is_what_was_required(booted: float, verdict: Verdict) -> None:
    log = START + DCGM.format("false", "true")
    expect(of_log(log, booted=booted), verdict, "")


def test_a_finding_is_said_although_the_log_was_cut() -> None:
    expect(of_log(DCGM.format("true", "false"), is_cut=True), Verdict.FAIL, "requires the node's replacement")
    expect(of_log(FIT, is_cut=True), Verdict.INCOMPLETE, "does not show where the last check began")


@pytest.mark.parametrize(
    ("vendor", "verdict"), [("Amazon EC2", Verdict.INCOMPLETE), ("Supermicro", Verdict.NOT_APPLICABLE)]
)
def test_a_log_that_was_not_collected_is_missed_only_on_ec2(vendor: str, verdict: Verdict) -> None:
    assert verdict_of(CHECK, platform={"vendor": vendor, "product": "x"}).verdict is verdict


def test_a_captured_log_is_recognised() -> None:
    log = START + DONE + FIT
    captured = output_of(log)["deep_health_check_log"]
    assert (captured["log"].rstrip(), captured["is_cut"]) == (log.rstrip(), False)


@pytest.mark.parametrize(
    "typed", ["", "ubuntu@gpu001:~$ sudo tail -n 99 /var/log/aws/clusters/sagemaker-deep-health-check.log\n"]
)
def test_the_end_of_one_that_begins_with_any_of_its_lines_is_recognised_too(typed: str) -> None:
    log = ERROR.replace("stress-ng failed", "no such device") + FIT
    assert output_of(typed + log)["deep_health_check_log"]["log"].rstrip() == log.rstrip()


def test_what_a_user_has_the_kernel_log_in_such_a_form_is_none() -> None:
    """By a newline in the options of a mount."""
    kernel = "[    0.000000] Linux version 6.8.0-1021-aws\n[   30.123456] cifs: Unknown parameter 'a\n"
    assert "deep_health_check_log" not in output_of(kernel + START + DCGM.format("true", "false"))


def logged(root: Path, log: str) -> Path:
    """A root with this log."""
    file = root / LOG[1:]
    file.parent.mkdir(parents=True)
    file.write_text(log)
    return file


def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    logged(tmp_path, "x" * MAX_CHARACTERS + FIT)
    found = read(Node(str(tmp_path)))
    assert found == {"log": ("x" * MAX_CHARACTERS + FIT)[-MAX_CHARACTERS:], "is_cut": True}


def test_a_node_without_the_log_has_an_empty_one_also_in_a_capture(tmp_path: Path) -> None:
    nothing = {"log": "", "is_cut": False}
    assert read(Node(str(tmp_path))) == nothing
    assert output_of(f"cat: {LOG}: No such file or directory\n")["deep_health_check_log"] == nothing


@needs_root
def test_a_log_that_a_user_may_write_is_no_evidence(tmp_path: Path) -> None:
    logged(tmp_path, DCGM.format("true", "true")).chmod(0o666)
    with pytest.raises(Denied, match="may be written by others"):
        read(Node(str(tmp_path)))
