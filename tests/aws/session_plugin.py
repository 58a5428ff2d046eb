"""A double of AWS's session-manager-plugin: its command line, its output, and its reading of standard input."""

from __future__ import annotations

import json
import os
import sys
import threading

from websockets.sync.client import ClientConnection, connect

from tests.aws.messages import (
    CLOSED,
    HANDSHAKE_COMPLETE,
    HANDSHAKE_REQUEST,
    HANDSHAKE_RESPONSE,
    INPUT,
    OUTPUT,
    Message,
    acknowledging,
    read,
)

VERSION = "1.3.0.0"
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"  # prefix of the variable that holds it


def main(arguments: list[str], version: str = VERSION) -> None:
    """Do what the plugin does with these arguments. Ends the process if a session was started."""
    if arguments == ["--version"]:
        _say(f"{version}\n")
        return
    response, _region, operation, *_ = arguments
    if response.startswith(RESPONSE):
        response = os.environ.pop(response, "")
    if operation != "StartSession":
        _say("Invalid Operation")
        return
    try:
        session = json.loads(response)
    except ValueError:
        _say("Cannot perform start session: invalid character looking for beginning of value\n")
        return
    _say(f"\nStarting session with SessionId: {session['SessionId']}\n")
    with connect(session["StreamUrl"], proxy=None) as connection:
        connection.send(json.dumps({"MessageSchemaVersion": "1.0", "TokenValue": session["TokenValue"]}))
        _follow(connection, session["SessionId"])


def _follow(connection: ClientConnection, session: str) -> None:
    """Print each message sent, once, until the channel is closed."""
    expected = 0
    for data in connection:
        message = read(data if isinstance(data, bytes) else data.encode())
        if message.type == CLOSED:
            _end(f"\n\nExiting session with sessionId: {session}.\n\n")
        if message.type != OUTPUT:
            continue
        connection.send(acknowledging(message).packed())
        if message.sequence != expected:
            continue
        expected += 1
        if message.kind == HANDSHAKE_REQUEST:
            connection.send(_accepting(message).packed())
        elif message.kind == HANDSHAKE_COMPLETE:
            threading.Thread(target=_read_input, daemon=True).start()
        else:
            os.write(1, message.payload)


def _accepting(request: Message) -> Message:
    actions = json.loads(request.payload)["RequestedClientActions"]
    done = [{"ActionType": action["ActionType"], "ActionStatus": 1} for action in actions]
    response = {"ClientVersion": VERSION, "ProcessedClientActions": done, "Errors": None}
    return Message(INPUT, json.dumps(response).encode(), HANDSHAKE_RESPONSE)


def _read_input() -> None:
    while os.read(0, 1024):
        pass
    _end("Cannot perform start session: EOF\n")


def _end(text: str) -> None:
    _say(text)
    os._exit(0)


def _say(text: str) -> None:
    os.write(1, text.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
