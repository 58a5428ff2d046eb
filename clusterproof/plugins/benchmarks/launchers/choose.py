"""Which launcher a cluster and a meter get."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.benchmarks.launchers.launcher import Campaign, Launcher
from clusterproof.plugins.benchmarks.launchers.mpirun import mpirun
from clusterproof.plugins.benchmarks.launchers.pods import pods
from clusterproof.plugins.benchmarks.launchers.srun import srun
from clusterproof.plugins.benchmarks.launchers.two_ends import ssh
from clusterproof.plugins.transport import Unusable
from clusterproof.plugins.transport.srun.submit_host import SETTING

LAUNCHERS: Mapping[str, Callable[[Campaign], Launcher]] = {"srun": srun, "mpirun": mpirun, "ssh": ssh, "pods": pods}


def launcher_for(campaign: Campaign, name: str = "") -> Launcher:
    """That of the name; else srun for Slurm, pods for Kubernetes, mpirun for ranks, ssh for ends. Raises Unusable."""
    if name and name not in LAUNCHERS:
        raise Unusable(f"no launcher is called {name!r:.40}; expected {', '.join(LAUNCHERS)}")
    return LAUNCHERS[name or _chosen(campaign)](campaign)


def _chosen(campaign: Campaign) -> str:
    if SETTING in campaign.cluster.settings:
        return "srun"
    if campaign.cluster.connection == "kubernetes":
        return "pods"
    return "mpirun" if campaign.meter.is_collective else "ssh"
