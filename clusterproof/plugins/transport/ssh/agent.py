"""The user's ssh-agent, which has a limited time for each answer: paramiko would wait without end."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from paramiko import Message, SSHException
from paramiko.agent import SSH2_AGENT_SIGN_RESPONSE, AgentSSH

VARIABLE = "SSH_AUTH_SOCK"
SILENT = f"the agent of {VARIABLE} does not answer"  # such as a forwarded one whose other end sleeps


class UserAgent(AgentSSH):
    """A connection to the agent; without one there are no keys. `problem` says why it has failed, if it has."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self.problem = ""
        path = os.environ.get(VARIABLE)
        if not path:
            return
        connected = socket.socket(socket.AF_UNIX)
        wait = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)  # for a place in its queue
        try:
            connected.connect(path)
            connected.settimeout(timeout_s)
            self._connect(connected)  # type: ignore[attr-defined] # not in its stubs
        except BlockingIOError:
            self.problem = SILENT
        except (OSError, SSHException, EOFError, ValueError) as problem:
            self.problem = self.problem or f"the agent of {VARIABLE}: {getattr(problem, 'strerror', None) or problem}"
        if self.problem:
            connected.close()

    def close(self) -> None:
        """Close the connection."""
        self._close()  # type: ignore[attr-defined] # not in its stubs

    def _send_message(self, msg: Any) -> tuple[int, Message]:
        try:
            answer: tuple[int, Message] = super()._send_message(msg)  # type: ignore[misc] # not in its stubs
        except (OSError, SSHException) as problem:
            is_silent = isinstance(problem, TimeoutError)
            self.problem = SILENT if is_silent else f"the agent of {VARIABLE}: {problem}"
            raise SSHException(self.problem) from None
        if self.get_keys() and answer[0] != SSH2_AGENT_SIGN_RESPONSE:
            self.problem = f"the agent of {VARIABLE} does not sign"
        return answer
