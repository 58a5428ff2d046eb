"""How AWS's session-manager-plugin uses its input and output; its double does the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.aws.data_channel import DataChannels
from tests.aws.session_plugin import RESPONSE
from tests.aws.systems_manager import PLUGINS, folder_of_plugin

SESSION = "someone-0123456789abcdef0"
PRINTED = b"one line\nand another, in more than one message: " + 3000 * b"." + b"\n"
BEGUN = f"\nStarting session with SessionId: {SESSION}\n".encode()
ENDED = f"\n\nExiting session with sessionId: {SESSION}.\n\n".encode()


@dataclass(frozen=True)
class Plugin:
    """The plugin, and a session whose command prints PRINTED once it `may_end`."""

    program: Path
    stream_url: str
    may_end: threading.Event

    def run(self, stdin: int = subprocess.PIPE) -> tuple[bytes, int]:
        """Its output and exit status; a pipe as input stays open until then."""
        session = {"SessionId": SESSION, "TokenValue": f"token-of-{SESSION}", "StreamUrl": self.stream_url}
        request = json.dumps({"Target": "i-0123456789abcdef0"})
        command = [str(self.program), RESPONSE, "us-west-2", "StartSession", "", request, "http://127.0.0.1:9"]
        variables = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", RESPONSE: json.dumps(session)}
        with subprocess.Popen(command, env=os.environ | variables, stdin=stdin, stdout=subprocess.PIPE) as running:
            assert running.stdout
            return running.stdout.read(), running.wait()


@pytest.fixture(params=PLUGINS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plugin]:
    """Each of the two, with a node's end to talk to."""
    may_end = threading.Event()
    channels = DataChannels(lambda _session: PRINTED if may_end.wait() else b"")
    program = folder_of_plugin(str(request.param), tmp_path) / "session-manager-plugin"
    yield Plugin(program, f"{channels.url}/{SESSION}", may_end)
    may_end.set()
    channels.close()


def test_it_prints_what_the_command_prints_between_lines_of_its_own(plugin: Plugin) -> None:
    plugin.may_end.set()
    assert plugin.run() == (BEGUN + PRINTED + ENDED, 0)


def test_it_ends_with_the_end_of_its_input_and_calls_that_a_success(plugin: Plugin) -> None:
    assert plugin.run(stdin=subprocess.DEVNULL) == (BEGUN + b"Cannot perform start session: EOF\n", 0)


def test_it_prints_its_version(plugin: Plugin) -> None:
    ended = subprocess.run([plugin.program, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+(\.\d+){3}\n", ended.stdout)


def test_it_takes_what_is_no_session_for_the_name_of_nothing(plugin: Plugin) -> None:
    command: list[str | Path] = [plugin.program, "no session", "us-west-2", "StartSession", "", '{"Target": ""}', ""]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("Cannot perform start session: invalid character ")
