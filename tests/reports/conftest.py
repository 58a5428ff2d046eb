"""One Chromium for the tests of a file, reset to its initial appearance before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.browser import Browser, browser


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def chromium(started: Browser) -> Browser:
    started.look()
    started.tell("Emulation.setScriptExecutionDisabled", value=False)
    return started
