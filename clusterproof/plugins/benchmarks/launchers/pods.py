"""Pairs of Kubernetes' nodes, each visited by a pod that has all its devices: two ends, or ranks by mpirun."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import replace

from clusterproof.plugins.agent.payload import joined
from clusterproof.plugins.benchmarks.launchers import FOLDER
from clusterproof.plugins.benchmarks.launchers.launcher import Campaign, check, typed
from clusterproof.plugins.benchmarks.launchers.mpirun import OWN_MPIRUN, SETTING, launch_by_hand
from clusterproof.plugins.benchmarks.launchers.on_node import PYTHON
from clusterproof.plugins.benchmarks.launchers.over_nodes import Outcome, OverNodes, Turn
from clusterproof.plugins.benchmarks.launchers.peer import WHERE, WORD
from clusterproof.plugins.benchmarks.launchers.ranks import merged, rank_shell, with_advice
from clusterproof.plugins.benchmarks.launchers.two_ends import two_ends
from clusterproof.plugins.benchmarks.meters.meter import Meter, MeterSettings, Output
from clusterproof.plugins.evidence.pairs import Reading
from clusterproof.plugins.transport import Unusable

SOURCE = "CLUSTERPROOF_PEER_SOURCE"
TRAVELS = tuple(FOLDER / name for name in ("pipes.py", "rendezvous.py", "peer.py"))
SERVE = f'exec "${PYTHON}" -I -c "${SOURCE}" {{port}}\n'
# Open MPI 4 reads the first of the agent's names, 5 the second. That a rank's program is missing, the meter says.
START = f"""m=$(command -v mpirun)||{{{{ echo "no mpirun on PATH; expected Open MPI in the image";exit 127; }}}}
a="${PYTHON} -I -c exec(__import__('os').environ['{SOURCE}'])"
export {WHERE}={{address}}:{{port}} OMPI_MCA_plm_rsh_agent="$a" PRTE_MCA_plm_ssh_agent="$a"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$m" --host "$(uname -n):{{ranks}},{{peer}}:{{ranks}}" -np {{both}} --bind-to none {{options}} /bin/sh -c {{rank}}
e=$?
case $e in 126|127)e=1;;esac
exit $e
"""


def pods(campaign: Campaign) -> OverNodes:
    """The launcher for nodes of Kubernetes. Raises Unusable elsewhere."""
    if campaign.cluster.connection != "kubernetes":
        raise Unusable("the launcher pods is for clusters of Kubernetes; expected srun, mpirun or ssh")
    check(campaign)
    return OverNodes(campaign, ranks_by_pods if campaign.meter.is_collective else two_ends)


def ranks_by_pods(turn: Turn) -> Outcome:
    """As two ends: on one node what starts mpirun's daemon there, on the other mpirun."""
    campaign = turn.campaign
    environment = {SOURCE: peer_program(), WORD: secrets.token_hex(16)}

    def start(_settings: MeterSettings, address: str, port: int) -> str:
        return start_shell(turn, address, port)

    def read(_settings: MeterSettings, outputs: Sequence[Output]) -> Reading:
        reading = campaign.meter.read(campaign.settings, (merged(outputs[0], turn.run),))
        one, other = turn.pair
        reading = typed(campaign, reading, launch_by_hand(campaign, other, one), turn.pair)
        return with_advice(reading, OWN_MPIRUN) if reading.is_apart else reading

    meter = Meter(campaign.meter.name, read, server=lambda _, port: SERVE.format(port=port), client=start)
    return two_ends(
        replace(turn, campaign=replace(campaign, meter=meter, settings=MeterSettings(environment=environment)))
    )


def peer_program() -> str:
    """The text of what starts commands on the other node of a pair."""
    return f"{joined(TRAVELS)}\nmain()\n"


def start_shell(turn: Turn, address: str, port: int) -> str:
    """What the node runs that comes; `address` and `port` are the other's."""
    ranks = turn.campaign.settings.ranks_per_node or 1
    return START.format(
        address=address,
        port=port,
        ranks=ranks,
        peer=shlex.quote(turn.where[turn.pair.a].name),
        both=2 * ranks,
        options=shlex.join(shlex.split(turn.campaign.limits.settings.get(SETTING, ""))),
        rank=shlex.quote(rank_shell(turn.campaign, turn.run)),
    )
