"""What the probe and the connections cost on real nodes of the testbed, beside plain OpenSSH."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
from collections.abc import Iterator, Mapping

from bench.figure import Figure
from bench.runs import cpu_s
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.transport import Limits, connection_for
from clusterproof.plugins.transport.gather import gather
from tests.builders.evaluated import probed
from tests.testbed import needs
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.node import healthy_p5
from tests.testbed.talkative import with_login_shell

AT_ONCE = 64
COUNTING = '#!/bin/sh\necho run >>/run/commands\nexec /bin/sh "$@"\n'


def probe() -> Iterator[Figure]:
    """The probe by itself, on one fake node with 8 GPUs and 32 EFA devices."""
    if needs.needs_nodes.args[0]:
        yield Figure("probe_wall_vs_slowest_collector", None, "≤ 1.2", str(needs.needs_nodes.kwargs["reason"]))
        return
    evidence = [probed(healthy_p5()) for _ in range(9)]
    ratios = [
        float(node.probe["seconds"]) / max(collector.seconds for collector in node.collectors.values())
        for node in evidence
    ]
    wall_s = statistics.median(float(node.probe["seconds"]) for node in evidence)
    node_cpu_s = statistics.median(float(node.probe["cpu_s"]) for node in evidence)
    detail = f"{len(evidence[0].collectors)} collectors in {wall_s:.2f} s"
    yield Figure("probe_wall_vs_slowest_collector", round(statistics.median(ratios), 2), "≤ 1.2", detail)
    yield Figure("probe_cpu_s_on_the_node", round(node_cpu_s, 2), "≤ 0.4", "user and system, of all collectors")
    to_run = program(collector_names(), ProbeOptions())
    size = len(to_run.command) + len(to_run.stdin)
    yield Figure("probe_characters", size, "≤ 60000", "as sent, with all collectors")


def connections() -> Iterator[Figure]:
    """64 simultaneous log-ins to one node under different names: commands per node, and CPU beside OpenSSH's."""
    if needs.needs_cluster.args[0]:
        yield Figure("control_cpu_vs_openssh", None, "≤ 1", str(needs.needs_cluster.kwargs["reason"]))
        return
    names = [f"gpu{number:03d}" for number in range(1, AT_ONCE + 1)]
    with testbed({names[0]: with_login_shell(healthy_p5(), COUNTING)}) as bed:
        for name in names[1:]:
            _alias(bed, name, names[0])
        evidence_by_node, ours_s = _gather(bed)
        reached = [node for node in evidence_by_node.values() if not node.unreached]
        commands = (bed.nodes[names[0]].root / "run/commands").read_text().count("run")
        yield Figure("commands_per_node", commands / AT_ONCE, "1", f"{len(reached)} of {AT_ONCE} nodes answered")
        theirs_s = statistics.median(_openssh(bed, names) for _ in range(3))
    per_node = f"{1000 * ours_s / AT_ONCE:.1f} ms a node beside {1000 * theirs_s / AT_ONCE:.1f} ms of ssh NODE true"
    yield Figure("control_cpu_vs_openssh", round(ours_s / theirs_s, 2), "≤ 1", per_node)


def _gather(bed: Testbed) -> tuple[Mapping[str, NodeEvidence], float]:
    """The evidence, and this process's median CPU seconds; the first round loads the modules and does not count."""
    os.environ["HOME"] = str(bed.home)
    cluster = resolve(f"ssh:gpu[001-{AT_ONCE:03d}]")
    collectors = {"boot"}  # the node's own work is not measured here
    spent: list[float] = []
    with bed.joined():
        for number in range(4):
            (bed.nodes["gpu001"].root / "run/commands").write_text("")
            before = cpu_s(resource.RUSAGE_SELF)
            limits = Limits(fanout=AT_ONCE, connect_s=60, answer_s=60)
            evidence_by_node = gather(
                cluster, connection_for("ssh"), collectors, ProbeOptions(), limits, lambda _evidence: None
            )
            if number:
                spent.append(cpu_s(resource.RUSAGE_SELF) - before)
    return evidence_by_node, statistics.median(spent)


def _openssh(bed: Testbed, names: list[str]) -> float:
    """CPU seconds of the same number of simultaneous `ssh NODE true`."""
    command = ["ssh", "-F", str(bed.ssh_config), "-o", "KexAlgorithms=curve25519-sha256"]
    before = cpu_s(resource.RUSAGE_CHILDREN)
    with bed.joined():
        running = [subprocess.Popen([*command, name, "true"], stderr=subprocess.DEVNULL) for name in names]
        for process in running:
            process.wait(60)
    return cpu_s(resource.RUSAGE_CHILDREN) - before


def _alias(bed: Testbed, name: str, of: str) -> None:
    """The same node under another name."""
    entry = bed.ssh_config.read_text().partition(f"Host {of}\n")[2].partition("Host ")[0]
    with bed.ssh_config.open("a") as config:
        config.write(f"Host {name}\n{entry}")
