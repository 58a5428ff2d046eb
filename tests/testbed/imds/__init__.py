"""A fake node's instance metadata service: a small web server on the node, and its answers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.testbed.compiled import program
from tests.testbed.image import Content, File

DAEMON = "imds"
ANSWERS = "/usr/lib/testbed/imds"
IDENTITY = f"{ANSWERS}/latest/dynamic/instance-identity/document"
EVENTS = f"{ANSWERS}/latest/meta-data/events/maintenance/scheduled"
TOKENS = f"{ANSWERS}/http-tokens"
NOWHERE = "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1"  # until the server adds its own; never this machine's
INSTANCE_ID = "i-0f1e2d3c4b5a69788"


def imds_files(instance_type: str) -> dict[str, Content]:
    """The server and its answers for a healthy instance; a node runs it with DAEMON among its daemons."""
    return {
        f"/usr/sbin/{DAEMON}": File(program(Path(__file__).with_name("fake_imds.c")), 0o755),
        "/etc/environment": f'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n{NOWHERE}\n',
        TOKENS: "required\n",
        IDENTITY: json.dumps(identity(instance_type), indent=2),
        EVENTS: "[]",
        f"{ANSWERS}/latest/meta-data/instance-id": INSTANCE_ID,
    }


def identity(instance_type: str) -> dict[str, object]:
    """An instance identity document as long as a real one."""
    return {
        "accountId": "123456789012",
        "architecture": "x86_64",
        "availabilityZone": "us-west-2b",
        "billingProducts": None,
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": "ami-0abcdef1234567890",
        "instanceId": INSTANCE_ID,
        "instanceType": instance_type,
        "kernelId": None,
        "pendingTime": "2025-11-20T06:00:00Z",
        "privateIp": "10.1.2.3",
        "ramdiskId": None,
        "region": "us-west-2",
        "version": "2017-09-30",
    }
