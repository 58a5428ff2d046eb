"""The web server that notifications are posted to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.watch.receiving import WebServer, quick, web_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    quick(monkeypatch)
    with web_server() as made:
        yield made
