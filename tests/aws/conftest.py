"""One moto server for all tests of AWS; a clean one, behind a proxy, for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aws.service import Service, environment, moto, service_before


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Where moto's server listens."""
    with moto() as url:
        yield url


@pytest.fixture
def service(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """AWS, empty; boto3 finds it."""
    with service_before(moto_url) as service:
        for name, value in environment(service).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        yield service
