"""What HyperPod's deep health checks logged last: /var/log/aws/clusters/sagemaker-deep-health-check.log.

`{"log": "2024-08-20T21:54:58Z    info    GpuPci Count check success\\n", "is_cut": false}`. `log` is empty where there
is none; `is_cut`: it has more than 32,768 characters. A log that users may write to is not read.
"""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Denied, Node
from clusterproof.plugins.agent.trust import distrust

LOG = "/var/log/aws/clusters/sagemaker-deep-health-check.log"
MAX_CHARACTERS = 32768


def read(node: Node) -> object:
    """The last lines. Raises Denied, OSError."""
    node.at(LOG)
    log = ""
    if node.exists(LOG):
        why = distrust(LOG, node.root)
        if why:
            raise Denied(why)
        log = node.read(LOG)
    return {"log": log[-MAX_CHARACTERS:], "is_cut": len(log) > MAX_CHARACTERS}
