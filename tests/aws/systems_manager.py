"""SSM's service end: opens sessions, takes commands and really runs them, with the real one's defects."""

from __future__ import annotations

import functools
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.aws.data_channel import DataChannels
from tests.aws.service import Answer, Service
from tests.aws.session_plugin import VERSION
from tests.counterparts import installed
from tests.testbed.image import NodeImage
from tests.testbed.node import Node, with_tool

Run = Callable[[str, Sequence[str]], bytes]  # a target and a command's arguments: the output
SHOWN = 24_000
ROOT = Path(__file__).parents[2]
WORKER = "ssm-document-worker"  # the process by which SSM's agent runs commands
DOUBLE = "the double"
OWN = "AWS's own"
PLUGINS = [
    pytest.param(DOUBLE, marks=pytest.mark.in_turn(DOUBLE, by="test")),
    pytest.param(OWN, marks=[installed.needs("session_manager_plugin"), pytest.mark.in_turn(OWN, by="test")]),
]
PLUGIN = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.aws.session_plugin import main
main(sys.argv[1:], {version!r})
"""
_words = functools.lru_cache(8)(shlex.split)  # of a long program, which many nodes get


def here(_target: str, command: Sequence[str]) -> bytes:
    """Run a command on this machine."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    ).stdout


def with_agent(image: NodeImage) -> NodeImage:
    """A testbed node on which SSM's agent runs commands."""
    return with_tool(image, WORKER, '#!/bin/sh\n"$@"\nexit $?\n')


def in_nodes(inside: Mapping[str, Node]) -> Run:
    """Run a command in the target node, as a child of the agent's worker."""

    def run(target: str, command: Sequence[str]) -> bytes:
        ran = inside[target].run([WORKER, *command], timeout=600)
        return ran.stdout + ran.stderr

    return run


@dataclass
class SystemsManager:
    """The double. `open`: sessions not yet closed; `most_open`: their maximum number at a time.

    Each of `vices` wraps the session's output: it takes the output and returns what is sent. `refuses`: targets without
    an agent that answers; `fails_first`: what the first sessions print instead of a command's output.
    """

    run: Run = here
    vices: list[Callable[[bytes], bytes]] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    fails_first: list[bytes] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    open: dict[str, tuple[str, str]] = field(default_factory=dict)
    most_open: int = 0
    commands: dict[str, dict[str, bytes]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, service: Service) -> None:
        """Take SSM's place in a service."""
        service.serves("StartSession", self.start_session)
        service.serves("TerminateSession", self.terminate_session)
        service.serves("DescribeInstanceInformation", self.describe_instance_information)
        service.serves("SendCommand", self.send_command)
        service.serves("ListCommandInvocations", self.list_command_invocations)
        service.serves("GetCommandInvocation", self.get_command_invocation)

    # Sessions

    def start_session(self, request: dict[str, Any]) -> dict[str, Any] | Answer:
        target = str(request["Target"])
        if request["DocumentName"] != "AWS-StartNonInteractiveCommand":
            return Answer(400, "InvalidDocument", "no such document")
        if target in self.refuses:
            return Answer(400, "TargetNotConnected", f"{target} is not connected.")
        (command,) = request["Parameters"]["command"]
        if len(command) > 65_535:
            return Answer(400, "ValidationException", "parameter too long")
        with self.lock:
            session = f"someone-{len(self.started):08x}"
            self.started.append(target)
            self.open[session] = (target, command)
            self.most_open = max(self.most_open, len(self.open))
        return {"SessionId": session, "TokenValue": f"token-of-{session}", "StreamUrl": f"{self.url}/{session}"}

    def terminate_session(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.open.pop(str(request["SessionId"]), None)
        return {"SessionId": request["SessionId"]}

    def output(self, session: str) -> bytes:
        """What the plugin receives once the command has ended: all its output, with standard error merged."""
        target, command = self.open[session]
        with self.lock:
            failing = self.fails_first.pop(0) if self.fails_first else None
            words = _words(command)
        output = self.run(target, words) if failing is None else failing
        for vice in self.vices:
            output = vice(output)
        return output

    # Commands

    def describe_instance_information(self, request: dict[str, Any]) -> dict[str, Any]:
        ids = next(row["Values"] for row in request["Filters"] if row["Key"] == "InstanceIds")
        known = [{"InstanceId": instance, "PingStatus": "Online"} for instance in ids if instance not in self.refuses]
        return {"InstanceInformationList": known}

    def send_command(self, request: dict[str, Any]) -> dict[str, Any] | Answer:
        ids, (script,) = request["InstanceIds"], request["Parameters"]["commands"]
        if len(ids) > 50 or self.refuses.intersection(ids):
            return Answer(400, "InvalidInstanceId", "Instances not in a valid state for account")
        if len(script) > 65_535:
            return Answer(400, "ValidationException", "parameters too long")
        command_id = f"00000000-0000-0000-0000-{len(self.commands):012d}"
        self.commands[command_id] = {
            instance: b"" if instance in self.statuses else self.run(instance, ["/bin/sh", "-c", script])
            for instance in ids
        }
        return {"Command": {"CommandId": command_id}}

    def list_command_invocations(self, request: dict[str, Any]) -> dict[str, Any]:
        rows = []
        for instance in self.commands[request["CommandId"]]:
            status = self.statuses.get(instance, "Success")
            rows.append({"InstanceId": instance, "Status": status, "StatusDetails": status})
        return {"CommandInvocations": rows}

    def get_command_invocation(self, request: dict[str, Any]) -> dict[str, Any]:
        output = self.commands[request["CommandId"]][request["InstanceId"]].decode()
        cut = output if len(output) <= SHOWN else f"{output[: SHOWN - 24]}\n--output truncated--"
        return {"StandardOutputContent": cut, "StandardErrorContent": "", "ResponseCode": 0, "Status": "Success"}


@contextmanager
def systems_manager(service: Service) -> Iterator[SystemsManager]:
    """The double in SSM's place, with a data channel for each session."""
    manager = SystemsManager()
    manager.serve(service)
    channels = DataChannels(manager.output)
    manager.url = channels.url
    try:
        yield manager
    finally:
        channels.close()


def folder_of_plugin(which: str, temporary: Path) -> Path:
    """The folder of one of PLUGINS."""
    if which != DOUBLE:
        return installed.folder("session_manager_plugin")
    folder = temporary / "bin"
    folder.mkdir()
    install_plugin(folder)
    return folder


def install_plugin(folder: Path, version: str = VERSION) -> None:
    """Install the double of AWS's session-manager-plugin."""
    plugin = folder / "session-manager-plugin"
    plugin.write_text(PLUGIN.format(python=sys.executable, root=str(ROOT), version=version))
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
