"""One sshd on loopback for a file's tests, and a client of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.loopback import Sshd, sshd
from tests.transport.ssh_client import Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def client(tmp_path: Path, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Client(tmp_path, server)
