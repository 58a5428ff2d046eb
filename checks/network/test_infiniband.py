"""InfiniBand and RoCE: fabrics other than EFA."""

from __future__ import annotations

import pytest

from clusterproof.plugins.facts.network import RdmaDevice
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import not_applicable

pytestmark = [
    pytest.mark.network,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.hyperpod_node_debugger("A"),
]


@evidence("ibstat; cat /sys/class/infiniband/*/ports/*/state")
def test_ib_ports(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand or RoCE ports are down.

    Every port that has a cable must be active; one rail down slows every collective. A port whose physical state is
    Disabled was switched off by somebody and is passed over.

    Remedy: Reseat or replace the cable; look at the switch port. ibdiagnet shows more.
    """
    if node.efa_devices:
        not_applicable("this node's fabric is EFA")
    assert ib_device.ports, "no port; expected at least one"
    used = [port for port in ib_device.ports if not port.physical_state.endswith("Disabled")]
    if not used:
        not_applicable("every port is disabled")
    for port in used:
        assert port.state.endswith("ACTIVE"), (
            f"port {port.number} is {port.state} ({port.physical_state}); expected 4: ACTIVE"
        )
        assert port.physical_state.endswith("LinkUp"), (
            f"port {port.number} is {port.physical_state}; expected 5: LinkUp"
        )
