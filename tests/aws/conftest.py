"""One moto server for all AWS tests, and for each test an empty one behind a proxy."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import boto3
import pytest
from botocore.loaders import JSONFileLoader

from tests.aws.ec2 import with_instances
from tests.aws.evidence_runs import answering, on_ec2
from tests.aws.service import Service, environment, moto, service_before
from tests.aws.storage import LUSTRE_MOUNT, CloudWatch, lustre, nodes_that_mount, quiet_lustre
from tests.aws.systems_manager import DOUBLE, SystemsManager, folder_of_plugin, systems_manager


@pytest.fixture(scope="session", autouse=True)
def loaded() -> Iterator[None]:
    """Load boto3 and its service models once: pytester forgets modules, and each session would read them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(functools.cache(JSONFileLoader().load_file)))
        yield


@pytest.fixture(scope="package")
def moto_url() -> Iterator[str]:
    """The URL of moto's server."""
    with moto() as url:
        yield url


@pytest.fixture
def service(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """An empty AWS that boto3 finds."""
    with service_before(moto_url) as service:
        for name, value in environment(service).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it would keep the previous test's credentials
        yield service


@pytest.fixture
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of the session-manager-plugin; the double's, unless a test asks for PLUGINS."""
    return folder_of_plugin(getattr(request, "param", DOUBLE), tmp_path)


@pytest.fixture
def manager(service: Service, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemsManager]:
    """A Systems Manager that runs commands on this machine, and a session-manager-plugin on PATH."""
    monkeypatch.setenv("PATH", f"{plugin}:{os.environ['PATH']}")
    with systems_manager(service) as manager:
        yield manager


@pytest.fixture
def watch(service: Service) -> CloudWatch:
    """An empty CloudWatch."""
    watch = CloudWatch()
    watch.serve(service)
    return watch


@pytest.fixture
def system(service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch) -> str:
    """A quiet Lustre file system mounted by three nodes."""
    name = lustre(service)
    quiet_lustre(watch, name)
    nodes_that_mount(service, monkeypatch, LUSTRE_MOUNT)
    return name


@pytest.fixture
def ids(service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """Three instances that mount a quiet Lustre file system, named by ssh."""
    _, instances = with_instances(service)
    quiet_lustre(watch, lustre(service))
    answering(monkeypatch, *(on_ec2(f"n{number}", instance) for number, instance in enumerate(instances, 1)))
    service.calls.clear()
    return instances
