"""What is run on a node, and what comes back."""

from __future__ import annotations

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.record import record

MAX_ANSWER_BYTES = 8 * 1024 * 1024  # of one node, as sent; a healthy 8-GPU node sends about 20 kB


@record
class Answer:
    """What came back from a node: its raw bytes (cut at MAX_ANSWER_BYTES), or why nothing did."""

    output: bytes = b""
    unreached: Unreached | None = None
    detail: str = ""
    seconds: float = 0.0


@record
class Program:
    """What to run on a node: a shell command line that reads `stdin` to its end of file.

    `nonce` marks its answer, and with it where that ends; empty where nothing does.
    """

    command: str
    stdin: bytes = b""
    nonce: str = ""
