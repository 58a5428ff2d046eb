"""The service end of SSM: opens sessions and takes commands, and really runs them, with the vices of the real one."""

from __future__ import annotations

import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.aws.service import Answer, Service

Run = Callable[[str, Sequence[str]], bytes]  # a target and the words of a command: what that prints
SHOWN = 24_000
PLUGIN = """#!{python}
import json, sys, urllib.request
session, region, operation, profile, request, endpoint = sys.argv[1:]
assert operation == "StartSession" and endpoint == f"https://ssm.{{region}}.amazonaws.com"
asked = urllib.request.Request(json.loads(session)["StreamUrl"], headers={{"Token": json.loads(session)["TokenValue"]}})
sys.stdout.buffer.write(urllib.request.urlopen(asked).read())
"""


def here(_target: str, words: Sequence[str]) -> bytes:
    """Run a command on this machine."""
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    ).stdout


@dataclass
class SystemsManager:
    """The double. `open` are the sessions that nobody has closed, `most_open` how many there were at once at most.

    `vices` are put around each session's output, one after another; each takes the output and returns what is sent.
    `refuses` are targets that no agent answers for; `fails_first` what the first sessions print in place of a command.
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
        """Take the place of SSM in a service."""
        service.serves("StartSession", self.start_session)
        service.serves("TerminateSession", self.terminate_session)
        service.serves("DescribeInstanceInformation", self.describe_instance_information)
        service.serves("SendCommand", self.send_command)
        service.serves("ListCommandInvocations", self.list_command_invocations)
        service.serves("GetCommandInvocation", self.get_command_invocation)

    # Sessions

    def start_session(self, asked: dict[str, Any]) -> dict[str, Any] | Answer:
        target = str(asked["Target"])
        if asked["DocumentName"] != "AWS-StartNonInteractiveCommand":
            return Answer(400, "InvalidDocument", "no such document")
        if target in self.refuses:
            return Answer(400, "TargetNotConnected", f"{target} is not connected.")
        (command,) = asked["Parameters"]["command"]
        if len(command) > 65_535:
            return Answer(400, "ValidationException", "parameter too long")
        with self.lock:
            session = f"someone-{len(self.started):08x}"
            self.started.append(target)
            self.open[session] = (target, command)
            self.most_open = max(self.most_open, len(self.open))
        return {"SessionId": session, "TokenValue": f"token-of-{session}", "StreamUrl": f"{self.url}/{session}"}

    def terminate_session(self, asked: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.open.pop(str(asked["SessionId"]), None)
        return {"SessionId": asked["SessionId"]}

    def output(self, session: str) -> bytes:
        """What the plugin is sent: nothing while the command runs, then all of it, standard error merged."""
        target, command = self.open[session]
        with self.lock:
            failing = self.fails_first.pop(0) if self.fails_first else None
        told = self.run(target, shlex.split(command)) if failing is None else failing
        for vice in self.vices:
            told = vice(told)
        return b"\nStarting session with SessionId: %s\n%s\n\nExiting session with sessionId: %s.\n\n" % (
            session.encode(),
            told,
            session.encode(),
        )

    # Commands

    def describe_instance_information(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids = next(row["Values"] for row in asked["Filters"] if row["Key"] == "InstanceIds")
        known = [{"InstanceId": one, "PingStatus": "Online"} for one in ids if one not in self.refuses]
        return {"InstanceInformationList": known}

    def send_command(self, asked: dict[str, Any]) -> dict[str, Any] | Answer:
        ids, (script,) = asked["InstanceIds"], asked["Parameters"]["commands"]
        if len(ids) > 50 or self.refuses.intersection(ids):
            return Answer(400, "InvalidInstanceId", "Instances not in a valid state for account")
        command_id = f"00000000-0000-0000-0000-{len(self.commands):012d}"
        self.commands[command_id] = {
            one: b"" if one in self.statuses else self.run(one, ["/bin/sh", "-c", script]) for one in ids
        }
        return {"Command": {"CommandId": command_id}}

    def list_command_invocations(self, asked: dict[str, Any]) -> dict[str, Any]:
        rows = []
        for one in self.commands[asked["CommandId"]]:
            status = self.statuses.get(one, "Success")
            rows.append({"InstanceId": one, "Status": status, "StatusDetails": status})
        return {"CommandInvocations": rows}

    def get_command_invocation(self, asked: dict[str, Any]) -> dict[str, Any]:
        output = self.commands[asked["CommandId"]][asked["InstanceId"]].decode()
        cut = output if len(output) <= SHOWN else f"{output[: SHOWN - 24]}\n--output truncated--"
        return {"StandardOutputContent": cut, "StandardErrorContent": "", "ResponseCode": 0, "Status": "Success"}


class Streams:
    """Where the plugin's stand-in fetches a session's output."""

    def __init__(self, manager: SystemsManager) -> None:
        class Stream(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                session = self.path.strip("/")
                if self.headers.get("Token") != f"token-of-{session}":
                    self.send_error(403)
                    return
                told = manager.output(session)
                self.send_response(200)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Stream)
        self.server.daemon_threads = True
        manager.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def install_plugin(folder: Path) -> None:
    """A stand-in for AWS's session-manager-plugin, with its command line."""
    plugin = folder / "session-manager-plugin"
    plugin.write_text(PLUGIN.format(python=sys.executable))
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
