"""Of what hardware the nodes of a run are made, by their evidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.node import MAX_GPUS, MAX_NAME, Node
from clusterproof.reports.history.model import NOBODY, Gpu, Identity

_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}$")  # of an address in Systems Manager


def identities(nodes: Mapping[str, Node]) -> dict[str, Identity]:
    """What each node reported about itself. What two nodes both claim to be counts for neither."""
    data = {name: Identity(_instance_id(node), _serial(node), tuple(_gpus(node))) for name, node in nodes.items()}
    instances = _claimed_twice(identity.instance_id for identity in data.values())
    serials = _claimed_twice(identity.serial for identity in data.values())
    uuids = _claimed_twice(gpu.uuid for identity in data.values() for gpu in identity.gpus)
    believed = {
        name: replace(
            identity,
            instance_id="" if identity.instance_id in instances else identity.instance_id,
            serial="" if identity.serial in serials else identity.serial,
            gpus=tuple(gpu for gpu in identity.gpus if gpu.uuid not in uuids),
        )
        for name, identity in data.items()
    }
    return {name: identity for name, identity in believed.items() if identity != NOBODY}


def _claimed_twice(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _instance_id(node: Node) -> str:
    try:
        return printable(node.instance_id, MAX_NAME)
    except (Incomplete, NotApplicable):
        address = _INSTANCE.search(node.target.address)
        return address[0] if address else ""


def _serial(node: Node) -> str:
    data = node.evidence.collectors.get("platform")
    serial = data.value.get("serial") if data and isinstance(data.value, dict) else None
    return printable(serial, MAX_NAME) if isinstance(serial, str) else ""


def _gpus(node: Node) -> Iterable[Gpu]:
    try:
        gpus = node.gpus[:MAX_GPUS]
    except (Incomplete, NotApplicable):
        return
    for gpu in gpus:
        uuid, serial = (gpu.record.get(key) for key in ("uuid", "serial"))
        if isinstance(uuid, str) and uuid:
            known = printable(serial, MAX_NAME) if isinstance(serial, str) else ""
            yield Gpu(gpu.index, printable(uuid, MAX_NAME), known)
