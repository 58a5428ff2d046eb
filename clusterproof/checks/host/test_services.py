"""systemd services that a node needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from clusterproof.plugins.catalog.node import is_ignored, needed_services
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, reading_of
from clusterproof.plugins.evidence.group import Difference, Values, describe, differences
from clusterproof.plugins.evidence.host.facts import Service
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight, mark.prolog, mark.ami]

DCGM = ("nvidia-dcgm", "dcgm")
CONTROLLER, CONTROLLED = "slurmctld", "slurmd"
RUNS, STARTS = "running", "started at boot"
NOWHERE = ("not-found", "masked")  # of what systemd loads


@mark.hyperpod_node_debugger("D")
@evidence("systemctl --failed; systemctl status slurmd munge containerd nvidia-persistenced")
def test_services(node: Node) -> None:
    """Services.

    A service that jobs, launchers or operators need has failed, keeps restarting, or is enabled but does not run. A
    service that is not installed or not enabled is reported only if it is munge and slurmd needs it, DCGM, which
    watches the GPUs during jobs, or a service that most nodes of the group run or start at boot. That last rule skips
    services that are masked, differ only on Slurm controllers, or are started on demand by a socket or prolog; in a
    tie, the nodes without the service get the concern. Other failed units are a concern, ignored before a job; users'
    own units never count. An image build host does not need services for devices that it does not have.

    Remedy (restore service): Read the service's log (journalctl -u NAME), fix the cause and start it (systemctl start
    NAME).
    """
    idle = deviceless(node)
    failed = [*known(lambda: node.failed_units, ()), *known(lambda: node.restarting_units, ())]
    units = known(lambda: node.services, {})
    services = {name: unit for name, unit in units.items() if _is_installed(unit)}
    amiss = {name: state for name, state in each(services, lambda name: (name, _amiss(node, services, name))) if state}
    amiss |= {name: "is failed" for name in map(_name, failed) if name in needed_services() and name not in services}
    without_munge = known(lambda: node.slurm_without_munge, "")
    if without_munge and "munge" not in amiss:
        amiss["munge"] = f"does not run, but slurmd needs it by {without_munge}"
    amiss = {name: state for name, state in amiss.items() if name not in idle}
    needed = ", ".join(_in_words(amiss, "fail"))
    fail_if(needed, f"{needed}; expected every enabled service active")
    watchers = [name for name in DCGM if name in services and name not in idle]
    watching = dict(each(watchers, lambda name: (name, services[name].active)))
    unwatched = ", ".join(f"{name} is {state}" for name, state in watching.items())
    is_unwatched = watching and "active" not in watching.values()
    concern_if(is_unwatched, f"{unwatched}; expected DCGM to watch the GPUs")
    others = [f"{unit} failed" for unit in failed if _name(unit) not in needed_services() and not is_ignored(unit)]
    wanting = [*_in_words(amiss, "concern"), *others]
    concern_if(wanting and node.occasion != "prolog", f"{', '.join(wanting)}; expected no failed unit")
    reported = {*amiss, *idle, *(watching if is_unwatched else ())}
    fewer = [deviation for deviation in _behind_most(node) if deviation.name not in reported]
    concern_if(fewer, describe(fewer))
    left_out = known(lambda: node.units_left_out, 0)
    if left_out:
        incomplete(f"{left_out} more units, not listed here, failed or keep restarting; expected none")
    if idle:
        not_applicable(f"no device for {', '.join(idle)} is attached to this {node.type_name}; all others run")


def _amiss(node: Node, services: Mapping[str, Service], name: str) -> str:
    """What is wrong with an installed service; empty if it runs as it should."""
    restarts, timeout_s = node.threshold("services.restarts_fail"), node.threshold("services.restarted_within_s")
    service, row = services[name], needed_services().get(name)
    if row is None or row.instead_of in services:
        return ""
    if known(lambda: service.is_being_restarted, False):
        return f"ended and is waiting for its next start, after {service.restarts or 0} restarts"
    if known(lambda: service.is_unhealthy, False):
        return f"is {service.active}"
    if service.keeps_ending(restarts, timeout_s):
        return f"restarted {service.restarts} times, last {service.active_s:.0f} s ago"
    return ""


def _behind_most(node: Node) -> list[Difference]:
    """The services that run, or start at boot, on most nodes of the group or half of them, but not here."""
    with suppress(NotApplicable):  # there is nobody to compare with
        running, at_boot = (
            differences(node, RUNS, _running, absent=None),
            differences(node, STARTS, _at_boot, absent=None),
        )
        fewer = {deviation.name for deviation in at_boot if _is_behind(deviation)}
        running = tuple(
            deviation
            for deviation in running
            if deviation.name in fewer or not needed_services()[deviation.name].on_demand
        )
        return [deviation for deviation in (*running, *at_boot) if _is_behind(deviation)]
    return []


def _is_behind(deviation: Difference) -> bool:
    """Whether most others have it running; without a majority, whether any other has."""
    return deviation.majority in (RUNS, STARTS) or not (deviation.majority or deviation.own in (RUNS, STARTS))


def _running(node: Node) -> Values:
    return _of_each(node, lambda service: RUNS if service.is_running else "not running")


def _at_boot(node: Node) -> Values:
    return _of_each(node, lambda service: "not started at boot" if service.enabled == "disabled" else STARTS)


def _of_each(node: Node, state: Callable[[Service], str]) -> Values:
    """The state of each installed service, under one of its names; None if it was not reported.

    Services that are kept from running are left out, and those that only a cluster's controllers have, or lack.
    """
    rows, every = needed_services(), known(lambda: node.services, {})
    services = {name: service for name, service in every.items() if reading_of(service, "load") not in NOWHERE}
    is_controller = CONTROLLER in services and known(lambda: services[CONTROLLER].is_running, False)
    names = rows.keys() - {CONTROLLER, CONTROLLED if is_controller else CONTROLLER}
    states: dict[str, str | None] = {}
    for name, service in services.items():
        if name in names and rows[name].instead_of not in services:
            states[name] = None
            with suppress(Incomplete):
                states[name] = state(service)
    return states


def _is_installed(service: Service) -> bool:
    """Whether systemd knows it; True if that is unknown."""
    return known(lambda: service.is_installed, True)


def _in_words(amiss: Mapping[str, str], verdict: str) -> list[str]:
    rows = needed_services()
    return [f"{name} {state} ({rows[name].purpose})" for name, state in amiss.items() if rows[name].verdict == verdict]


def _name(unit: str) -> str:
    return unit.removesuffix(".service")


def deviceless(node: Node) -> list[str]:
    """The services for devices that a machine that only builds images does not have."""
    if node.occasion != "ami" or not node.is_build_host:
        return []
    from clusterproof.plugins.manifest import unattached  # only where an image is checked

    return [
        name
        for name, service in node.services.items()
        if service.is_installed and service.active != "active" and unattached(node, name)
    ]
