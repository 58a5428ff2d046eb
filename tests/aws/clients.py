"""Clients that bypass the proxy, for a test's setup."""

from __future__ import annotations

import functools
from typing import Any

import boto3

from tests.aws.service import Service


def client(service: Service, name: str, region: str = "us-west-2") -> Any:
    """A boto3 client of moto itself, whose calls are not counted."""
    return _client(service.moto_url, name, region)


@functools.cache
def _client(moto_url: str, name: str, region: str) -> Any:
    return boto3.Session().client(
        name,
        endpoint_url=moto_url,
        region_name=region,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
