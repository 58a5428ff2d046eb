"""This node's entry in HyperPod's /opt/ml/config/resource_config.json: its place in the network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Broke, Node

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

FILE = "/opt/ml/config/resource_config.json"
LAYER = re.compile(r"(?:.{0,60}/)?network-node-layer-([1-9])")
OF_ADDRESS = re.compile(r"ip-([0-9]{1,3}(?:-[0-9]{1,3}){3})(?:\.|$)")
LONGEST = 100  # characters of a name


def read(node: Node) -> object:
    """The network nodes above this node, the topmost first. Raises Broke."""
    node.at(FILE)
    try:
        data = json.loads(node.read(FILE))
    except FileNotFoundError:
        return {"file": False, "layers": []}
    except (ValueError, RecursionError) as problem:
        raise Broke("%s is not JSON: %s" % (FILE, str(problem)[:100])) from None
    instances = list(_instances(data))
    own = _own(node, instances) or (instances if len(instances) == 1 else [])
    if not own:
        raise Broke("%s has %d instances, and this node is none of them" % (FILE, len(instances)))
    return {"file": True, "layers": _layers(own[0])}


def _instances(data: Any) -> Iterator[dict[str, Any]]:
    """Every instance of every group."""
    groups = data.get("InstanceGroups") if isinstance(data, dict) else None
    for group in groups if isinstance(groups, list) else ():
        instances = group.get("Instances") if isinstance(group, dict) else None
        for instance in instances if isinstance(instances, list) else ():
            if isinstance(instance, dict):
                yield instance


def _own(node: Node, instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entry of this node: by the instance id in the firmware, else by the address in the host name."""
    own_id = node.text("/sys/class/dmi/id/board_asset_tag", absent="")
    host = OF_ADDRESS.match(str(node.text("/proc/sys/kernel/hostname", absent="")))
    address = host.group(1).replace("-", ".") if host else None
    by_id = [instance for instance in instances if own_id and instance.get("InstanceId") == own_id]
    return by_id or [instance for instance in instances if address and instance.get("CustomerIpAddress") == address]


def _layers(instance: dict[str, Any]) -> list[str]:
    labels = instance.get("InstanceLabel")
    layers = {}
    for key, value in labels.items() if isinstance(labels, dict) else ():
        layer = LAYER.fullmatch(key)
        if layer and isinstance(value, str) and value:
            layers[layer.group(1)] = value[:LONGEST]
    return [layers[number] for number in sorted(layers)]
