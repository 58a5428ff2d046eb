"""What HyperPod's deep health checks logged in CloudWatch, if SageMaker reports a node as failed or under check.

The name of a stream is no node's, and a line need not name one either. Any node of the cluster may write to the log
with its role: it says more about nodes that SageMaker reports as unwell, and is no evidence against others.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.aws.resources import described, nodes
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("hyperpod",)
UNWELL = ("Failure", "DeepHealthCheckInProgress")
STREAMS = "DeepHealthCheckResults/"
PATTERN = '?"error" ?"ERROR"'  # lines with either word
BACK = timedelta(days=3)
MAX_ERRORS = 200  # the last ones
MAX_TEXT = 500  # characters
INSTANCE = re.compile(r"(?<![\w-])i-[0-9a-f]{8,17}(?![\w-])")
NO_LOG = "ResourceNotFoundException"


def read_deep_health_checks(account: Account, cluster: Cluster) -> object:
    """The last errors of three days, with the instances that each names; the log is not read if no node is unwell."""
    if not any(node["InstanceStatus"].get("Status") in UNWELL for node in nodes(account, cluster)):
        return {"errors": []}
    arn = str(cluster.settings["arn"])
    name = described(account, cluster)["ClusterName"]
    errors: deque[dict[str, object]] = deque(maxlen=MAX_ERRORS)
    try:
        lines = account.listed(
            "logs",
            "filter_log_events",
            "events",
            logGroupName=f"/aws/sagemaker/Clusters/{name}/{arn.rpartition('/')[2]}",
            logStreamNamePrefix=STREAMS,
            filterPattern=PATTERN,
            startTime=int((datetime.now(timezone.utc) - BACK).timestamp() * 1000),
        )
        errors.extend(filter(None, map(_error, lines)))
    except AwsError as problem:
        if problem.code != NO_LOG:
            raise
    return {"errors": list(errors)}


def _error(event: Mapping[str, Any]) -> dict[str, object] | None:
    """A line as evidence; None if it is of another level."""
    line = str(event.get("message", ""))
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    level, message = (data.get("level"), data.get("msg")) if isinstance(data, dict) else (None, None)
    if isinstance(level, str) and level.lower() != "error":
        return None
    return {
        "time": int(event.get("timestamp", 0)) / 1000,
        "text": (message if isinstance(message, str) else line)[:MAX_TEXT],
        "InstanceIds": sorted(set(INSTANCE.findall(f"{event.get('logStreamName', '')} {line}"))),
    }
