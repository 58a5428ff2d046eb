"""Whether Neuron devices answer, and who uses them: `neuron-ls --json-output`."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.tools import command


def read(node: Node) -> object:
    """The output of neuron-ls, which opens every device."""
    return command(node, "neuron-ls", "--json-output")
