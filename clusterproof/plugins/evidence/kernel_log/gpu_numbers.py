"""The addresses of GPUs in lines that have only the driver's own number of one, which may be another in nvidia-smi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.kernel_log.events_gpu import GpuEvent, XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import HostEvent, Logged

_NUMBERED = Pattern(r"RPC response from (GPU\d{1,3}) GSP\b")  # in an Xid 119 or 120, more than a process can be called
DRIVERS_NUMBER = Pattern(r"GPU\d{1,3}")


def with_addresses(events: Iterable[GpuEvent | HostEvent]) -> tuple[GpuEvent | HostEvent, ...]:
    """The events; those about a GPU of which an Xid has both number and address are about that address."""
    events = tuple(events)
    addresses: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, XidEvent) and event.pci and (numbered := _NUMBERED.search(event.text)):
            addresses.setdefault(numbered[1], set()).add(event.pci)
    known = {number: pci for number, (pci, *others) in addresses.items() if not others}
    return tuple(_addressed(event, known) if isinstance(event, Logged) else event for event in events)


def _addressed(event: Logged, known: Mapping[str, str]) -> Logged:
    pci = known.get(event.device)
    return replace(event, device=pci, names=(*event.names, pci)) if pci else event
