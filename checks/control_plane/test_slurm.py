"""What Slurm reports about a node, in captures of scontrol and sinfo."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, incomplete
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.slurm.facts import SlurmNode
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.control_plane, mark.preflight, mark.hyperpod_slurm_debugger]

OUT_OF_USE = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "DRNG", "FAIL", "FAILING", "FAILG", "ERROR"})
UNKNOWN = frozenset({"UNKNOWN", "UNK"})


@evidence("scontrol show node NODE; sinfo -R")
def test_slurm_nodes(node: Node) -> None:
    """Slurm node state.

    A node that is down, drained or failing gets no jobs. One whose GRES differ from the GPUs of its type gets jobs that
    cannot use all of them, or jobs that do not start.

    Remedy (fix configuration): Fix what the reason names, then resume the node (scontrol update nodename=NODE
    state=resume). Correct GRES in gres.conf and slurm.conf, and restart slurmd.
    """
    data = node.slurm_node
    bad = sorted(data.states & OUT_OF_USE)
    assert not bad, f"Slurm reports it as {data.state}{data.why}; expected a node that takes jobs"
    if data.states & UNKNOWN or not data.states:
        incomplete(f"Slurm reports it as {data.state or 'nothing'}; expected a state")
    if not data.answers:
        concern(f"slurmctld does not hear from it ({data.state}{data.why}); expected slurmd to answer")
    require_gpus(node, data)


def require_gpus(node: Node, data: SlurmNode) -> None:
    """Compare the GPUs in its GRES with those of its type."""
    gpus, expected = data.gpus, node.expected("gpus")
    if gpus != expected:
        concern(f"GRES {data.gres or '(null)'}; expected {expected} GPUs")
