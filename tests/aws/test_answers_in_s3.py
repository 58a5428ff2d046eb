"""Answers longer than SSM shows: cut, or read whole from S3, where others may have put something in their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.response import StreamingBody

from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.transport import MAX_ANSWER_BYTES
from tests.aws.clusters import client
from tests.aws.send_command import LIMITS, gathered
from tests.aws.service import Service
from tests.aws.systems_manager import SystemsManager, here


def test_an_answer_longer_than_ssm_shows_is_cut_and_says_what_helps(manager: SystemsManager) -> None:
    manager.run = lambda _target, command: run_with_noise(command)
    (evidence,) = gathered()
    assert evidence.unreached is Unreached.CUT
    assert "--ssm-output s3://BUCKET" in evidence.detail


def test_an_answer_whose_rest_is_not_to_be_had_from_s3_keeps_what_ssm_shows(manager: SystemsManager) -> None:
    manager.run = lambda _target, command: here("", command) + b"noise\n" * 5000
    (evidence,) = gathered(limits=replace(LIMITS, settings=LIMITS.settings | {"ssm_output": "s3://nowhere/probe"}))
    assert (evidence.unreached, list(evidence.collectors)) == (None, ["boot"])
    manager.run = lambda _target, command: run_with_noise(command)
    (evidence,) = gathered(limits=replace(LIMITS, settings=LIMITS.settings | {"ssm_output": "s3://nowhere/probe"}))
    assert evidence.unreached is Unreached.CUT
    assert "that SSM shows; of --ssm-output: s3:GetObject: NoSuchBucket" in evidence.detail


def by_s3(manager: SystemsManager, service: Service, stored: Callable[[bytes], bytes]) -> NodeEvidence:
    """The answer read from an instance whose output in S3 is this."""
    manager.run = lambda _target, command: run_with_noise(command)
    s3 = client(service, "s3", "us-east-1")
    s3.create_bucket(Bucket="answers")
    send = service.served["SendCommand"]

    def send_and_store(wanted: dict[str, Any]) -> Any:
        response = send(wanted)
        for command_id, outputs in manager.commands.items():
            for instance, output in outputs.items():
                key = f"probe/{command_id}/{instance}/awsrunShellScript/0.awsrunShellScript/stdout"
                s3.put_object(Bucket=wanted["OutputS3BucketName"], Key=key, Body=stored(output))
        return response

    service.serves("SendCommand", send_and_store)
    (evidence,) = gathered(limits=replace(LIMITS, settings=LIMITS.settings | {"ssm_output": "s3://answers/probe"}))
    return evidence


def test_an_answer_longer_than_ssm_shows_is_read_from_s3(manager: SystemsManager, service: Service) -> None:
    assert not by_s3(manager, service, bytes).unreached


def test_an_answer_in_s3_that_breaks_off_costs_its_own_node_alone(
    manager: SystemsManager, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_body: StreamingBody, _size: int | None = None) -> bytes:
        raise ReadTimeoutError(endpoint_url="https://s3", error="silent")

    monkeypatch.setattr(StreamingBody, "read", breaks)
    assert "s3:GetObject: Read timeout" in by_s3(manager, service, bytes).detail


@pytest.mark.parametrize(
    "forged",
    [
        lambda output: re.sub(rb"cp[0-9a-f]{10}", b"cp0123456789", output),  # the answer to another request
        lambda output: b"x" * (MAX_ANSWER_BYTES + 10) + output,
        lambda _: b"",
    ],
    ids=["of another run", "endless", "empty"],
)
def test_what_others_have_put_in_its_place_in_s3_is_no_answer(
    manager: SystemsManager, service: Service, forged: Callable[[bytes], bytes]
) -> None:
    assert by_s3(manager, service, forged).unreached is not None


def run_with_noise(command: Sequence[str]) -> bytes:
    """A command's output, after more noise than SSM shows."""
    return b"noise\n" * 5000 + here("", command)
