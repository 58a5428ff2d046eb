"""What Slurm reports about a node, in captures of scontrol and sinfo."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.node import Node

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
    with part:
        bad = data.states & OUT_OF_USE
        fail_if(bad, f"Slurm reports it as {data.state}{data.why}; expected a node that takes jobs")
        is_silent = not bad and not data.answers
        concern_if(is_silent, f"slurmctld does not hear from it ({data.state}{data.why}); expected slurmd to answer")
        if data.states & UNKNOWN or not data.states:
            incomplete(f"Slurm reports it as {data.state or 'nothing'}; expected a state")
    gpus, expected = data.gpus, node.expected("gpus")
    concern_if(gpus != expected, f"GRES {data.gres or '(null)'}; expected {expected} GPUs")
