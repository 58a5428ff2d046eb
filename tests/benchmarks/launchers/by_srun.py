"""Campaigns by srun on a Slurm of four nodes, in two pairs."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.benchmarks.launchers import MeterCampaign, PairOrGroup
from clusterproof.plugins.benchmarks.launchers.srun import srun
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.evidence.pairs import Pair, Reading
from clusterproof.plugins.transport import Limits
from tests.benchmarks.launchers.launched import cluster_of, measured
from tests.testbed.slurm import CONTROLLER, SlurmBed

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
ROUND = [Pair("gpu001", "gpu002"), Pair("gpu003", "gpu004")]


def campaign(
    bed: SlurmBed, meter: Meter, run_s: float = 600.0, name: str = "slurm:gpu", **settings: str
) -> MeterCampaign:
    """A campaign whose submit host is reached over ssh."""
    plugin_settings = {
        "submit_host": f"ssh:{CONTROLLER}",
        "config": str(bed.bed.ssh_config),
        "slurm_wait": "5",
        **settings,
    }
    cluster = cluster_of(dict.fromkeys(NAMES, ""), "srun", name=name, **plugin_settings)
    return MeterCampaign(
        meter, MeterSettings(ranks_per_node=2), cluster, Limits(connect_s=10.0, settings=plugin_settings), run_s
    )


def round_of(bed: SlurmBed, made: MeterCampaign, together: Sequence[PairOrGroup] = ROUND) -> dict[str, Reading]:
    """The measurements of a round."""
    with bed.bed.joined(), srun(made) as launcher:
        return measured(launcher, together)
