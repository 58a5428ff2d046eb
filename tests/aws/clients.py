"""Clients that bypass the proxy, for a test's setup."""

from __future__ import annotations

from typing import Any

from tests.aws.service import Service


def client(service: Service, name: str, region: str = "us-west-2") -> Any:
    """A boto3 client of moto itself, whose calls are not counted."""
    import boto3

    return boto3.client(
        name,
        endpoint_url=service.moto_url,
        region_name=region,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
