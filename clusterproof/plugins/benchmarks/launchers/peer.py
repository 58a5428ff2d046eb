"""Starts a command on another node of a pair or group through our own connection: replaces ssh for mpirun.

All ends know the secret of their run, which never travels, and prove it to each other: the node that serves runs one
command, of an end that has, and whose words whoever is on the path cannot change. Travels; standard library only, for
Python 3.8.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import subprocess
import sys
import time

from clusterproof.plugins.benchmarks.launchers.rendezvous import (
    PROOF_BYTES,
    Acceptor,
    authenticate,
    exactly,
    listen,
    proof,
)

WORD, WHERE = (
    "CLUSTERPROOF_PEER_WORD",
    "CLUSTERPROOF_PEER",
)  # in the environment; the second, NAME=ADDRESS:PORT of each, only where mpirun is
MAX_COMMAND_BYTES = 64 * 1024
PEER_S = 10.0  # for an authenticated peer to send its whole request
FOREVER_S = 3600.0  # the caller ends it
ENDED = struct.Struct("!4si")  # after the output: how the command ended
MARK = b"\0cp\0"
ASKS = b"asks"


def main() -> None:
    """Act as mpirun's agent (`HOST COMMAND …`) if the environment locates the peers; else serve (`PORT`)."""
    word = os.environ.pop(WORD).encode()  # no child needs it
    if WHERE in os.environ:
        peers = dict(peer.split("=", 1) for peer in os.environ[WHERE].split())
        sys.exit(start(peers[sys.argv[1]], word, " ".join(sys.argv[2:]).encode()))
    serve(int(sys.argv[1]), word)


def serve(port: int, word: bytes) -> None:
    """Run the first command of an authenticated peer, and send it the output and the exit status."""
    with contextlib.closing(Acceptor(listen(port), word)) as acceptor:
        command = b""
        while not command:
            peer = acceptor.accept(FOREVER_S)
            command = requested_command(peer, word) if peer else b""
    assert peer
    with peer:
        argv, to = ["/bin/sh", "-c", command.decode()], peer.fileno()
        ran = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=to, stderr=to, check=False)
        peer.sendall(ENDED.pack(MARK, ran.returncode))


def requested_command(peer: socket.socket, word: bytes) -> bytes:
    """The command that a peer requests; empty if it sends none, or somebody else has changed it."""
    until = time.monotonic() + PEER_S
    try:
        (length,) = struct.unpack("!I", exactly(peer, 4, until))
        command = exactly(peer, min(length, MAX_COMMAND_BYTES), until)
        if not hmac.compare_digest(exactly(peer, PROOF_BYTES, until), proof(word, ASKS, command, b"")):
            raise OSError("it is not what the peer has sent")
        peer.settimeout(None)
    except OSError:
        peer.close()
        return b""
    return command


def start(where: str, word: bytes, command: bytes) -> int:
    """Run a command on the peer; returns its exit status and prints its output."""
    address, _, port = where.rpartition(":")
    output = b""
    with socket.create_connection((address, int(port)), PEER_S) as peer:
        authenticate(peer, word)
        peer.sendall(struct.pack("!I", len(command)) + command + proof(word, ASKS, command, b""))
        peer.settimeout(None)
        for read in iter(lambda: peer.recv(65536), b""):
            output += read
            os.write(1, output[: -ENDED.size])
            output = output[-ENDED.size :]
    if len(output) == ENDED.size and output.startswith(MARK):
        return int(ENDED.unpack(output)[1]) & 0xFF
    os.write(1, output)
    return 1
