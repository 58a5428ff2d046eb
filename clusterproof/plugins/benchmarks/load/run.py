"""Runs the collectors that load the hardware one after another, because they would disturb one another."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.run import answer, collect
from clusterproof.plugins.agent.running import Running

PACKAGE = __name__.rpartition(".")[0]
BEAT_S = 20.0


def main(
    collectors: dict[str, tuple[str, float]],
    root: str,
    whole_s: float,
    settings: dict[str, str],
    max_characters: int,
    nonce: str,
    sudo: str,
) -> None:
    """Answer one request and exit."""

    def read(running: list[Running]) -> None:
        for name, (function, collector_s) in collectors.items():
            running.append(
                Running(name, Node(root, collector_s=collector_s, settings=settings), f"{PACKAGE}.{function}")
            )
            collect(running[-1:], BEAT_S)

    answer(read, whole_s, root, nonce, sudo, max_characters)
