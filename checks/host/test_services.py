"""The services that a node needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.catalog.services import is_ignored, needed_services
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, not_applicable
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.host.facts import Service
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.manifest.values import unattached
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.host, mark.preflight, mark.prolog, mark.ami]

DCGM = ("nvidia-dcgm", "dcgm")


@mark.hyperpod_node_debugger("D")
@evidence("systemctl --failed; systemctl status slurmd munge containerd nvidia-persistenced")
def test_services(node: Node) -> None:
    """Services.

    A service that jobs, launchers or operators need has failed, keeps restarting, or is enabled and does not run. One
    that is not installed or not enabled is not reported, except DCGM: without it nothing watches the GPUs while jobs
    run. Other failed units are a concern, and ignored before a job; a user's own units never count. A machine that only
    builds an image need not run the services of a device that it does not have.

    Remedy (restore service): Read its log (journalctl -u NAME), fix what it names and start it.
    """
    idle = deviceless(node)
    data, unread = readings(node, "services", "failed_units", "restarting_units")
    failed = [*data.get("failed_units", ()), *data.get("restarting_units", ())]
    services = {name: service for name, service in data.get("services", {}).items() if service.is_installed}
    amiss = dict(_amiss(services, node)) | {
        name: "is failed" for name in map(_name, failed) if name in needed_services() and name not in services
    }
    amiss = {name: words for name, words in amiss.items() if name not in idle}
    needed = ", ".join(_in_words(amiss, "fail"))
    assert not needed, f"{needed}; expected every enabled service active"
    require(unread)
    if idle:
        not_applicable(f"no device for {', '.join(idle)} is attached to this {node.type_name}; all others run")
    unwatched = [f"{name} is {service.active}" for name, service in services.items() if name in DCGM]
    if unwatched and not any(words.endswith(" is active") for words in unwatched):
        concern(f"{', '.join(unwatched)}; expected DCGM to watch the GPUs")
    others = [f"{unit} failed" for unit in failed if _name(unit) not in needed_services() and not is_ignored(unit)]
    wanting = [*_in_words(amiss, "concern"), *others]
    if wanting and node.occasion != "prolog":
        concern(f"{', '.join(wanting)}; expected no failed unit")


def _amiss(services: Mapping[str, Service], node: Node) -> Iterator[tuple[str, str]]:
    """The installed services that do not run as they should, and what is wrong with each."""
    restarts, timeout_s = node.threshold("services.restarts_fail"), node.threshold("services.restarted_within_s")
    for name, service in services.items():
        row = needed_services().get(name)
        if row is None or row.instead_of in services:
            continue
        if service.is_being_restarted:
            yield name, f"ended and waits to be started once more, after {service.restarts or 0} restarts"
        elif service.is_amiss:
            yield name, f"is {service.active}"
        elif service.keeps_ending(restarts, timeout_s):
            yield name, f"was restarted {service.restarts} times, the last {service.active_s:.0f} s ago"


def _in_words(amiss: Mapping[str, str], verdict: str) -> list[str]:
    rows = needed_services()
    return [f"{name} {words} ({rows[name].purpose})" for name, words in amiss.items() if rows[name].verdict == verdict]


def _name(unit: str) -> str:
    return unit.removesuffix(".service")


def deviceless(node: Node) -> list[str]:
    """The services that wait for a device which a machine that only builds images does not have."""
    if node.occasion != "ami" or not node.is_build_host:
        return []
    return [
        name
        for name, service in node.services.items()
        if service.is_installed and service.active != "active" and unattached(node, name)
    ]
