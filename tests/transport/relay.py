"""A ProxyCommand: relays between its standard input and output and HOST PORT."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys


def main(host: str, port: str) -> None:
    """Relay until one side closes."""
    with socket.create_connection((host, int(port))) as far, selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ, lambda: (os.read(0, 65536), far.sendall))
        ready.register(far, selectors.EVENT_READ, lambda: (far.recv(65536), lambda read: os.write(1, read)))
        while True:
            for key, _ in ready.select():
                read, send = key.data()
                if not read:
                    return
                send(read)


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):
        main(*sys.argv[1:])
