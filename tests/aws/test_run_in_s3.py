"""`--run s3://BUCKET/PREFIX`: a training run is read from S3 and leaves nothing on this disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import boto3
import pytest

from clusterproof.plugins.aws import Account, AwsError, s3
from clusterproof.plugins.aws.s3 import fetched
from tests.aws.service import Service

pytest_plugins = ["pytester"]
BUCKET = "sagemaker-us-west-2-123456789012"
ROW = (
    '{{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":{percent},'
    '"NodeId":"algo-{node}","Timestamp":{at}}}\n'
)


@pytest.fixture
def bucket(service: Service) -> Service:
    """A bucket with a profiler's folder: two nodes whose GPUs are half used, and another job's."""
    for node in (1, 2):
        text = "".join(ROW.format(percent=50, node=node, at=1_591_160_000 + 2 * number) for number in range(300))
        put(service, f"job-1/profiler-output/system/incremental/2020060305/1591160000.algo-{node}.json", text)
    put(service, "job-1/profiler-output/framework/training_job_end.ts", "1591160600")
    put(service, "job-10/profiler-output/system/incremental/2020060305/1591160000.algo-1.json", "not of this job")
    return service


def put(service: Service, key: str, text: str) -> None:
    client = boto3.client("s3", endpoint_url=service.moto_url)
    if not client.list_buckets()["Buckets"]:
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    client.put_object(Bucket=BUCKET, Key=key, Body=text.encode())


@pytest.mark.parametrize("prefix", ["job-1", "job-1/", "job-1/profiler-output"])
@pytest.mark.usefixtures("bucket")
def test_a_prefix_is_evaluated_as_a_folder_is(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arguments = ("--run", f"s3://{BUCKET}/{prefix}", "-p", "no:cacheprovider", "--pyargs", "clusterproof.checks.run")
    ran = pytester.runpytest_inprocess(*arguments, "-k", "gpu_busy")
    assert ran.ret == 0
    ran.stdout.fnmatch_lines(
        ["run: *: 2 files, *", "run: not understood: training_job_end.ts", "*50 % of the time, algo-*"]
    )
    assert not list(tmp_path.glob("clusterproof-run-*"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"s3://{BUCKET}/job-2", "*--run: s3://*/job-2: no object there; expected the files of a run"),
        ("s3://nobodys/x", "*--run: s3:ListBucket: NoSuchBucket: *"),
        ("s3://", "*--run: s3://: no bucket; expected s3://BUCKET/PREFIX"),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_what_is_not_there_is_one_clear_line(pytester: pytest.Pytester, url: str, message: str) -> None:
    ran = pytester.runpytest_inprocess("--run", url, "-p", "no:cacheprovider", "--pyargs", "clusterproof.checks.run")
    assert ran.ret == 4
    ran.stderr.fnmatch_lines([message])


def test_one_object_is_a_file(bucket: Service, tmp_path: Path) -> None:
    put(bucket, "steps.csv", "rank,step,duration\n")
    path = fetched(Account(), f"s3://{BUCKET}/steps.csv", tmp_path)
    assert path == tmp_path / "steps.csv"
    assert path.read_text() == "rank,step,duration\n"


def test_no_name_of_an_object_leads_out_of_the_folder(bucket: Service, tmp_path: Path) -> None:
    put(bucket, "evil/a/../../../etc/passwd", "root")
    with pytest.raises(AwsError, match=r"no name of a file; expected one without '\.\.'"):
        fetched(Account(), f"s3://{BUCKET}/evil/", tmp_path)
    assert not list(tmp_path.rglob("passwd"))


@pytest.mark.usefixtures("bucket")
def test_more_than_one_run_can_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "MAX_OBJECTS", 1)
    with pytest.raises(AwsError, match="more than 1 objects or 64 GiB; expected one run"):
        fetched(Account(), f"s3://{BUCKET}/job-1", tmp_path)
