"""The account that AWS is asked with: its region and credentials, or one line on why boto3 cannot use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.inventory import resolve
from tests.aws.clusters import NAME, WORKERS, refused, with_cluster
from tests.aws.service import Answer as Refusal
from tests.aws.service import Service


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_either_variable_of_aws_names_the_region(
    service: Service, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with_cluster(service, WORKERS)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(variable, "us-west-2")
    assert resolve(NAME).settings["region"] == "us-west-2"


def test_without_a_region_or_credentials_it_is_said_in_one_line(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    assert "no AWS region; expected --region, AWS_REGION or one in the profile" in refused(NAME)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "no AWS credentials here; expected some in the environment" in refused(NAME, region="us-west-2")
    assert "(nowhere) could not be found" in refused(NAME, profile="nowhere")


def test_half_of_the_credentials_and_a_profile_that_names_none_are_said_in_one_line(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("[profile role]\nrole_arn = arn:aws:iam::123456789012:role/x\nsource_profile = nowhere\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with pytest.raises(AwsError, match='source_profile "nowhere" referenced in the profile "role" does not exist'):
        Account(profile="role").require_credentials()
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AwsError, match="Partial credentials found in env, missing: AWS_SECRET_ACCESS_KEY"):
        Account().require_credentials()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("credential_process = no-such-program-here", "FileNotFoundError: [Errno 2] No such file or directory"),
        ("credential_process = echo sign in first", "JSONDecodeError: Expecting value: line 1 column 1"),
        ("credential_process = 'sign in", "ValueError: No closing quotation"),
        (
            "role_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = /nowhere/token",
            "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/token'",
        ),
        (
            "aws_access_key_id = a\naws_secret_access_key = b\nendpoint_url = nowhere",
            "ValueError: Invalid endpoint: nowhere",
        ),
    ],
)
def test_a_configuration_that_boto3_cannot_use_is_one_line(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, problem: str
) -> None:
    (tmp_path / "config").write_text(f"[default]\nregion = us-west-2\n{entry}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    message = refused("ec2:i-0123456789abcdef0")
    assert f"ec2:DescribeInstances: {problem}" in message
    assert message.endswith("; expected credentials and settings of AWS that boto3 can use")


def test_doctor_is_told_of_credentials_that_boto3_cannot_read(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\ncredential_process = echo sign in first\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AwsError, match="the AWS credentials: JSONDecodeError: Expecting value: line 1 column 1"):
        Account().require_credentials()


@pytest.mark.parametrize("code", ["AuthFailure", "RequestExpired"])
def test_credentials_that_ec2_does_not_accept_are_no_missing_permission(service: Service, code: str) -> None:
    """EC2's own codes: RequestExpired for temporary credentials that have expired."""
    service.says("DescribeInstances", Refusal(401, code, "AWS was not able to validate the provided credentials"))
    assert "the credentials are not valid or have expired, or this machine's clock is wrong; sign in again" in refused(
        "ec2:tag:Name=gpu"
    )


def test_a_region_that_is_newer_than_the_installed_boto3_is_asked(service: Service) -> None:
    """As ap-southeast-6 was to a boto3 that knew ap-southeast-5."""
    assert Account("ap-southeast-99").region == "ap-southeast-99"
    with pytest.raises(AwsError, match=r"did you mean .*or a newer boto3 for a newer region"):
        Account("mo-central-1")


def test_the_command_lines_region_outranks_the_environments(service: Service) -> None:
    assert "in eu-west-1" in refused(NAME, region="eu-west-1")
