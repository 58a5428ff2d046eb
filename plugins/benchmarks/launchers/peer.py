"""Starts a command on the other node of a pair, by a connection of our own: what mpirun has where there is no ssh.

Both ends know the secret of their run, which never travels: the node that serves asks something new each time, and runs
the one command that comes with the right answer. Travels; standard library only, for Python 3.8.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import subprocess
import sys
import time

from clusterproof.plugins.benchmarks.launchers.rendezvous import listen

WORD, WHERE = "CLUSTERPROOF_PEER_WORD", "CLUSTERPROOF_PEER"  # in the environment; the second only where mpirun is
ASKED_BYTES = ANSWER_BYTES = 32
MAX_COMMAND_BYTES = 64 * 1024
PEER_S = 10.0  # for a peer that connects to send its whole request
ENDED = struct.Struct("!4si")  # behind the output: how the command ended
MARK = b"\0cp\0"


def main() -> None:
    """As mpirun's agent (`HOST COMMAND …`) where the environment says where the peer is; else serve (`PORT`)."""
    word = os.environ.pop(WORD).encode()  # nothing that is started needs it
    if WHERE in os.environ:
        sys.exit(start(os.environ[WHERE], word, " ".join(sys.argv[2:]).encode()))
    serve(int(sys.argv[1]), word)


def serve(port: int, word: bytes) -> None:
    """Run the first command of a peer that knows the secret, and send it the output and the exit status."""
    with listen(port) as listener:
        while True:
            peer, _ = listener.accept()
            command = asked(peer, word)
            if command:
                break
            peer.close()
    with peer:
        words, to = ["/bin/sh", "-c", command.decode()], peer.fileno()
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=to, stderr=to, check=False)
        peer.sendall(ENDED.pack(MARK, ran.returncode))


def asked(peer: socket.socket, word: bytes) -> bytes:
    """The command that a peer asks for; empty where it does not know the secret."""
    question, until = os.urandom(ASKED_BYTES), time.monotonic() + PEER_S
    peer.settimeout(PEER_S)
    try:
        peer.sendall(question)
        answer = exactly(peer, ANSWER_BYTES, until)
        (length,) = struct.unpack("!I", exactly(peer, 4, until))
        command = exactly(peer, min(length, MAX_COMMAND_BYTES), until)
        peer.settimeout(None)
    except OSError:
        return b""
    return command if hmac.compare_digest(answer, answer_to(question, word, command)) else b""


def start(where: str, word: bytes, command: bytes) -> int:
    """Have the peer run a command: its output is ours, and so is its exit status."""
    address, _, port = where.rpartition(":")
    output = b""
    with socket.create_connection((address, int(port)), PEER_S) as peer:
        question = exactly(peer, ASKED_BYTES, time.monotonic() + PEER_S)
        peer.sendall(answer_to(question, word, command) + struct.pack("!I", len(command)) + command)
        peer.settimeout(None)
        for read in iter(lambda: peer.recv(65536), b""):
            output += read
            os.write(1, output[: -ENDED.size])
            output = output[-ENDED.size :]
    if len(output) == ENDED.size and output.startswith(MARK):
        return int(ENDED.unpack(output)[1]) & 0xFF
    os.write(1, output)
    return 1


def answer_to(question: bytes, word: bytes, command: bytes) -> bytes:
    """What only one that knows the secret can answer to a question."""
    return hmac.new(word, question + command, hashlib.sha256).digest()


def exactly(peer: socket.socket, count: int, until: float) -> bytes:
    """So many bytes. Raises OSError where fewer come in time."""
    data = b""
    while len(data) < count:
        if time.monotonic() > until:
            raise OSError("the peer is too slow")
        read = peer.recv(count - len(data))
        if not read:
            raise OSError("the peer has closed")
        data += read
    return data
