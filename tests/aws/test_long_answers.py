"""A sick instance's output is long, and SSM shows little of it: what counts arrives, and what is cut is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.transport.ssm import Ssm
from tests.aws.systems_manager import SystemsManager, in_nodes, with_agent
from tests.builders.evaluated import probed, results
from tests.builders.probed import PATIENT
from tests.testbed.image import NodeImage, text_of
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_p5, with_file, with_kernel_line

pytestmark = needs_nodes

LIMITS = Limits(fanout=8, connect_s=300, answer_s=300, settings={"region": "us-west-2"})
NODE = Target("gpu001", "i-0123456789abcdef0")
XID = "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, GPU has fallen off the bus."
FAILED = (
    "LustreError: 11-0: fsx-OST{ost:04x}-osc-ffff8a01b2c3d400: operation ost_read to node 10.1.71.{ost}@tcp failed: "
    "rc = -{pid}"
)
SLOW = (
    "Lustre: {pid}:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: "
    "[sent {pid}/real {pid}] req@ffff{pid:08x} x{pid}/t0(0) o4->fsx-OST{ost:04x}-osc-ffff8a01@10.1.71.{ost}@tcp:6/4"
)
LOST = (
    "Lustre: fsx-OST{ost:04x}-osc-ffff8a01b2c3d400: Connection to fsx-OST{ost:04x} (at 10.1.71.{ost}@tcp) was lost; in "
    "progress operations using this service will wait for recovery to complete"
)


def in_a_storm(image: NodeImage, *, each: int = 40) -> NodeImage:
    """An Xid, then lines of each kind for each of 128 Lustre targets: every server is lost."""
    image = with_kernel_line(image, XID, at_s=70_000)
    lines = [
        f"3,{500 + n},{70_001_000_000 + n * 1000},-;{text.format(ost=ost, pid=n * 7919 % 99991)}\n"
        for n, (_, ost, text) in enumerate(
            (turn, ost, text) for turn in range(each) for ost in range(128) for text in (FAILED, SLOW, LOST)
        )
    ]
    return with_file(image, "/dev/kmsg", text_of(image.files["/dev/kmsg"]) + "".join(lines))


@pytest.fixture
def sick(manager: SystemsManager) -> Iterator[NodeImage]:
    """An instance with such a log, on which SSM's agent runs commands."""
    image = in_a_storm(healthy_p5())
    with entered(with_agent(image)) as node:
        manager.run = in_nodes({NODE.address: node})
        yield image


CUT = frozenset({Verdict.INCOMPLETE})  # besides the findings, what was not seen


def through_ssm(limits: Limits = LIMITS) -> NodeEvidence:
    """The instance's report."""
    cluster = Cluster("one", "ssm", (NODE,))
    return gather(cluster, Ssm(), collector_names(), PATIENT, limits, lambda _: None)[NODE.name]


def evaluated(evidence: NodeEvidence) -> Mapping[str, Result]:
    return results(evidence, peers=[evidence], group="workers", instance_type="p5.48xlarge")


def test_a_storm_in_the_log_of_lustre_leaves_an_instance_reached_with_all_its_verdicts(sick: NodeImage) -> None:
    by_check = evaluated(through_ssm())
    direct = evaluated(probed(sick, NODE.name))
    for check, result in direct.items():
        verdicts = {finding.verdict for finding in by_check[check].findings} - CUT
        assert verdicts == {finding.verdict for finding in result.findings} - CUT, check
    assert by_check["gpu.no_xid"].verdict is Verdict.FAIL
    assert by_check["storage.file_system_errors"].verdict is Verdict.INCOMPLETE
    assert "concern: " in by_check["storage.file_system_errors"].message


def test_what_was_cut_is_incomplete_with_a_word_and_never_a_pass(sick: NodeImage) -> None:
    evidence = through_ssm()
    log = evidence.collectors["kernel_log"].value
    assert set(log["cut"]) == {"file_servers"}
    recovered = [line for line in log["lines"] if "OST" not in line[1]]
    healed = replace(evidence.collectors["kernel_log"], value={**log, "lines": recovered})
    by_check = evaluated(replace(evidence, collectors={**evidence.collectors, "kernel_log": healed}))
    result = by_check["storage.file_system_errors"]
    assert result.verdict is Verdict.INCOMPLETE
    assert f"{log['cut']['file_servers'][0]} lines of the kernel log were cut" in result.message


def test_an_answer_that_ssm_has_cut_keeps_what_came_whole(sick: NodeImage, manager: SystemsManager) -> None:
    run = manager.run
    manager.run = lambda target, command: b"noise\n" * 2000 + run(target, command)
    evidence = through_ssm()
    assert evidence.unreached is None
    statuses = {name: collector.status for name, collector in evidence.collectors.items()}
    assert set(statuses) == set(collector_names())
    assert {Status.READ, Status.CUT} <= set(statuses.values())
    cut = next(collector for collector in evidence.collectors.values() if collector.status is Status.CUT)
    assert cut.too_long
    assert "24,000 characters that SSM shows" in cut.detail
    by_check = evaluated(evidence)
    assert by_check["node.reachable"].verdict is Verdict.PASS
    assert by_check["node.evidence_complete"].verdict is Verdict.INCOMPLETE
    assert by_check["node.evidence_complete"].message.startswith("cut from the answer: ")
