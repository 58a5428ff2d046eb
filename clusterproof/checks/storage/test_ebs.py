"""EBS volumes: do their limits slow down what is read and written?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import concern_if, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import at_least_one, each
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.storage, mark.preflight]

LIMITS = {
    "volume_iops_us": "the volume's IOPS",
    "volume_throughput_us": "the volume's throughput",
    "instance_iops_us": "the instance's IOPS",
    "instance_throughput_us": "the instance's throughput",
}


@mark.hyperpod_performance_debugger("B")
@evidence("sudo nvme amzn stats /dev/nvme0")
def test_ebs_limits(node: Node) -> None:
    """EBS performance limits.

    A volume has a limit of operations and of bytes a second, and so have all volumes of an instance together. Requests
    beyond it wait: programs and images load slowly from a root volume, logs and checkpoints are written slowly. The
    mean since boot is evaluated, which includes the first minutes with their packages and images. What jobs read and
    write counts too.

    Remedy (fix configuration): Raise the volume's IOPS and throughput (aws ec2 modify-volume; gp3 starts at 3000 IOPS
    and 125 MB/s), or move images, caches and checkpoints to local NVMe disks or FSx. For the instance's limits only a
    larger instance helps.
    """
    try:
        volumes = at_least_one(list(node.ebs_volumes), "volume of EBS")
    except Absent:
        not_applicable("no volume of EBS")
    limit_s, period_s = node.threshold("ebs.exceeded_s"), node.threshold("ebs.period_s")
    periods = max(1.0, node.boot.uptime_s / period_s)
    above = []
    limits = [(volume, name) for volume in volumes for name in LIMITS]
    for volume, limit, exceeded_s in each(limits, lambda one: (one[0], LIMITS[one[1]], getattr(*one) / 1e6)):
        if exceeded_s > limit_s * periods:
            mean = apart(exceeded_s / periods, limit_s)[0]
            above.append(f"{volume.label}: above {limit} for {exceeded_s:.0f} s, {mean} s in {period_s:g} s")
    concern_if(above, f"{', '.join(above)}; expected at most {limit_s:g} s")
