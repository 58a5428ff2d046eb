"""The node's end of a session: shakes hands like SSM's agent, sends the command's output, closes the channel."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.aws.messages import (
    ACKNOWLEDGE,
    CLOSED,
    HANDSHAKE_COMPLETE,
    HANDSHAKE_REQUEST,
    HANDSHAKE_RESPONSE,
    INPUT,
    OUTPUT,
    PRINTED,
    Message,
    acknowledging,
    read,
)

PAYLOAD = 1024  # bytes that SSM's agent puts into one message
RESEND_S = 0.05  # unacknowledged messages are sent again: the plugin drops those that come before it is ready
AGENT = "3.3.3050.0"
Output = Callable[[str], bytes]  # a session's output, once its command has ended


class DataChannels:
    """Where plugins connect: `ws://…/SESSION`, with the token `token-of-SESSION`."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._server = serve(self._served, "127.0.0.1", 0)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Accept no more plugins."""
        self._server.shutdown()

    def _served(self, connection: ServerConnection) -> None:
        session = connection.request.path.strip("/") if connection.request else ""
        with suppress(ConnectionClosed):  # the plugin has ended
            opened = json.loads(connection.recv())
            if opened["TokenValue"] != f"token-of-{session}":
                connection.close(1008, "the token is of another session")
                return
            agent = Agent(connection)
            agent.shake_hands()
            agent.send_output(self._output(session))
            agent.close(session)


class Agent:
    """One session as SSM's agent runs it: each message is sent again until it is acknowledged."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._sent = 0
        self._answers: list[Message] = []

    def shake_hands(self) -> None:
        """Agree with the plugin to run a command without a terminal."""
        kind = {"SessionType": "NonInteractiveCommands", "Properties": {}}
        request = {
            "AgentVersion": AGENT,
            "RequestedClientActions": [{"ActionType": "SessionType", "ActionParameters": kind}],
        }
        self._send(json.dumps(request).encode(), HANDSHAKE_REQUEST)
        while not any(answer.kind == HANDSHAKE_RESPONSE for answer in self._answers):
            self._receive(None)
        message = {"HandshakeTimeToComplete": 1_000_000, "CustomerMessage": ""}
        self._send(json.dumps(message).encode(), HANDSHAKE_COMPLETE)

    def send_output(self, printed: bytes) -> None:
        """Send a command's output."""
        for start in range(0, len(printed), PAYLOAD):
            self._send(printed[start : start + PAYLOAD], PRINTED)

    def close(self, session: str) -> None:
        """End the session, and wait until the plugin has gone."""
        message = {"MessageType": CLOSED, "SessionId": session, "SchemaVersion": 1, "Output": ""}
        self._connection.send(Message(CLOSED, json.dumps(message).encode()).packed())
        while True:
            self._receive(None)

    def _send(self, payload: bytes, kind: int) -> None:
        message = Message(OUTPUT, payload, kind, self._sent)
        self._sent += 1
        self._connection.send(message.packed())
        while not self._is_acknowledged(message):
            self._connection.send(message.packed())

    def _is_acknowledged(self, message: Message) -> bool:
        with suppress(TimeoutError):
            while True:
                received = self._receive(RESEND_S)
                is_its = received.type == ACKNOWLEDGE and received.data["AcknowledgedMessageId"] == str(message.id)
                if is_its:
                    return True
        return False

    def _receive(self, timeout_s: float | None) -> Message:
        """The next message; acknowledges the plugin's input. Raises TimeoutError, ConnectionClosed."""
        data = self._connection.recv(timeout_s)
        message = read(data if isinstance(data, bytes) else data.encode())
        if message.type == INPUT:
            self._answers.append(message)
            self._connection.send(acknowledging(message).packed())
        return message
