"""GPU memory that wears out: signs before it fails."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import concern_if, fail_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]

DAY_S = 86_400


@mark.ami
@evidence("nvidia-smi -q -d ECC | grep -i -A3 sram")
def test_sram_threshold(gpu: Gpu, node: Node) -> None:
    """SRAM error threshold.

    The driver raises a flag when a GPU's SRAM meets NVIDIA's criterion for replacement. A count above four without the
    flag is close to it.

    Remedy (replace): Flag raised: replace the node. Otherwise watch it.
    """
    with part:
        fail_if(gpu.sram_threshold_exceeded, "the SRAM error threshold is exceeded; expected not to be")
    with part:
        errors, most = gpu.ecc_aggregate_uncorrected_sram, node.threshold("ecc.aggregate_sram")
        concern_if(errors > most, f"{errors} uncorrected SRAM errors in its life; expected at most {most:.0f}")


@evidence("nvidia-smi --query-gpu=index,ecc.errors.corrected.volatile.total --format=csv")
def test_corrected_ecc_rate(gpu: Gpu, node: Node) -> None:
    """Corrected GPU memory error rate.

    Corrected errors do no harm individually. A rising rate precedes uncorrected ones, and thousands a second stall the
    driver while every tool reports the GPU as healthy. The rate is the mean since boot.

    Remedy (replace): Above a thousand a second: drain the node and replace it. Above a thousand a day: watch it.
    """
    per_s = gpu.ecc_corrected_total / max(node.boot.uptime_s, 1.0)
    most_per_s, most_per_day = node.threshold("ecc.corrected_per_s"), node.threshold("ecc.corrected_per_day")
    seen, most = apart(per_s, most_per_s)
    assert per_s <= most_per_s, f"{seen} corrected ECC errors a second; expected at most {most}"
    seen, most = apart(per_s * DAY_S, most_per_day)
    concern_if(per_s * DAY_S > most_per_day, f"{seen} corrected ECC errors a day; expected at most {most}")
