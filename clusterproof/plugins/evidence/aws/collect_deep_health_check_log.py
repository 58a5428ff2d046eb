"""What HyperPod's deep health checks logged last: /var/log/aws/clusters/sagemaker-deep-health-check.log.

`{"log": "2024-08-20T21:54:58Z    info    GpuPci Count check success\\n", "is_cut": false}`. `is_cut`: the log is longer
than 32 KiB. A log that users may write to is not read.
"""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Absent, Denied, Node
from clusterproof.plugins.agent.trust import distrust

LOG = "/var/log/aws/clusters/sagemaker-deep-health-check.log"
MAX_BYTES = 32768


def read(node: Node) -> object:
    """The last lines. Raises Absent, Denied."""
    node.at(LOG)
    try:
        why = distrust(LOG, node.root)
    except FileNotFoundError:
        raise Absent(LOG) from None
    if why:
        raise Denied(why)
    with open(node.path(LOG), "rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - MAX_BYTES))
        return {"log": log.read(MAX_BYTES).decode("utf-8", "replace"), "is_cut": size > MAX_BYTES}
