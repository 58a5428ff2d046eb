"""HyperPod nodes that report their network position: this machine plays each, under a host root with its files."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.aws.clusters import instance_id
from tests.aws.systems_manager import SystemsManager, here

CONFIG = "opt/ml/config/resource_config.json"
TAG = "sys/class/dmi/id/board_asset_tag"


def config_of(layers: Mapping[str, Sequence[str]], group: str = "workers") -> str:
    """HyperPod's file: every instance by id, with the network nodes above it."""
    instances = [
        {
            "InstanceName": node,
            "CustomerIpAddress": f"10.0.0.{number}",
            "InstanceId": instance_id(node),
            "InstanceLabel": {f"network-node-layer-{layer}": name for layer, name in enumerate(names, start=1)},
        }
        for number, (node, names) in enumerate(layers.items(), start=1)
    ]
    return json.dumps({"ClusterConfig": {}, "InstanceGroups": [{"Name": group, "Instances": instances}]})


def with_nodes(manager: SystemsManager, root: Path, config: str | None) -> None:
    """Have every node read its own instance id, and this resource_config.json."""
    (root / TAG).parent.mkdir(parents=True)
    (root / CONFIG).parent.mkdir(parents=True)
    if config is not None:
        (root / CONFIG).write_text(config)
    lock = threading.Lock()

    def run(target: str, command: Sequence[str]) -> bytes:
        with lock:
            (root / TAG).write_text(f"i-{target.rpartition('i-')[2]}\n")
            return here(target, command)

    manager.run = run
