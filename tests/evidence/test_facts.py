"""A node's report is read strictly: a value of the wrong kind is incomplete, never a number."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Collection
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, EvidenceError, NodeEvidence, Status, from_json, load, to_json
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.fact import CollectorData, collected_by
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.group import Group
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.recording import read_cluster
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.transport.gather import replay
from tests.builders.examples import examples
from tests.evidence.nonsense import JSON

pytestmark = pytest.mark.any_user


@pytest.mark.parametrize(
    ("data", "raises", "message"),
    [
        ({"error": "NOT_SUPPORTED"}, NotApplicable, "not supported"),
        ({"error": "FUNCTION_NOT_FOUND"}, NotApplicable, "not supported"),
        ({"error": "GPU_IS_LOST"}, Incomplete, "GPU_IS_LOST"),
        ({"error": 7}, Incomplete, "not understood"),
        (None, Incomplete, "not reported"),
        ("0", Incomplete, "not understood"),
        (True, Incomplete, "not understood"),
        (0.0, Incomplete, "not understood"),
        ([], Incomplete, "not understood"),
    ],
)
def test_a_count_that_is_no_count_is_not_read_as_one(data: object, raises: type[Exception], message: str) -> None:
    with pytest.raises(raises, match=message):
        assert Gpu(0, {"ecc_uncorrected_dram": data}).ecc_uncorrected_dram


def test_nothing_of_a_lost_gpu_can_be_read() -> None:
    gpu = Gpu(3, {"lost": {"error": "GPU_IS_LOST"}, "ecc_uncorrected_dram": 0})
    with pytest.raises(Incomplete, match="GPU_IS_LOST"):
        assert gpu.ecc_uncorrected_dram == 0


@pytest.mark.long
@examples(200)
@given(
    collector=st.sampled_from(["boot", "platform", "nvml", "pci", "rdma", "kernel_log", "mounts", "services"]),
    data=JSON,
)
def test_no_nonsense_from_a_node_breaks_a_check_or_passes_as_evidence(collector: str, data: Any) -> None:
    node = Node(
        Target("gpu001", instance_type="p5.48xlarge"), NodeEvidence("gpu001", {collector: Collected(Status.READ, data)})
    )
    for check in reading({collector}):
        result = evaluate(check, node)
        assert "the check itself broke" not in result.message
        if check.collectors - {collector}:
            assert result.verdict is not Verdict.PASS


@pytest.mark.long
@examples(100)
@given(place=st.integers(min_value=0, max_value=10_000), put=JSON)
def test_one_spoilt_value_in_a_healthy_answer_never_breaks_a_check(place: int, put: Any) -> None:
    spoilt = from_json(_spoil(json.loads(answer()), place, put))
    node = Node(Target("gpu001"), spoilt)
    changed = {name for name, collected in spoilt.collectors.items() if collected != healthy().collectors[name]}
    for check in reading(changed):
        assert "the check itself broke" not in evaluate(check, node).message


def reading(collectors: Collection[str]) -> list[Check]:
    """The checks that are given any of these; what others say does not depend on them."""
    return [check for check in node_checks().values() if not check.collectors.isdisjoint(collectors)]


@cache
def healthy() -> NodeEvidence:
    return replay(DEMO, read_cluster(DEMO))["gpu001"]


@cache
def answer() -> str:
    return json.dumps(to_json(healthy()))


def _spoil(record: dict[str, Any], place: int, put: Any) -> dict[str, Any]:
    """Replace a value somewhere inside the collectors' values."""
    places: list[tuple[Any, Any]] = []

    def walk(container: Any) -> None:
        entries = (
            container.items()
            if isinstance(container, dict)
            else enumerate(container)
            if isinstance(container, list)
            else ()
        )
        for key, value in entries:
            places.append((container, key))
            walk(value)

    for collector in record["collectors"].values():
        if "value" in collector:
            walk(collector["value"])
    container, key = places[place % len(places)]
    container[key] = put
    return record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a node's evidence"),
        ("[]", "evidence is a list"),
        ('{"schema": 3}', "schema is 3; expected 1 or 2"),
        ('{"schema": 2, "node": 7, "collectors": {}}', "node is a int; expected text"),
        ('{"schema": 2, "node": "a", "collectors": {"nvml": {"status": "fine"}}}', "expected one of read, absent"),
        ('{"schema": 2, "node": "a", "collectors": [], "unreached": null}', "collectors is a list"),
    ],
)
def test_a_recording_that_has_not_its_form_says_where(text: str, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        load(text)


def test_a_recording_of_schema_1_is_read_as_the_same_evidence() -> None:
    for evidence in replay(DEMO, read_cluster(DEMO)).values():
        record = to_json(evidence)
        leaves = record.pop("collectors")
        for collector in leaves.values():
            if collector["status"] == "read":
                collector["status"] = "told"
        assert from_json({**record, "schema": 1, "leaves": leaves}) == evidence


@pytest.mark.long
def test_evidence_survives_its_way_to_disk() -> None:
    for evidence in replay(DEMO, read_cluster(DEMO)).values():
        assert from_json(to_json(evidence)) == evidence


def test_a_collector_that_an_older_recording_lacks_was_not_asked_for() -> None:
    node = Node(Target("gpu001"), NodeEvidence("gpu001", {}))
    with pytest.raises(
        Incomplete, match="kernel_log: was not requested; expected a run, or a recording of one, with the same -m"
    ):
        assert node.kernel_events
    result = evaluate(node_checks()["gpu.no_xid"], node)
    assert (result.verdict, result.cause) == (Verdict.INCOMPLETE, "kernel_log was not requested")


@pytest.mark.parametrize("word", ["NOT_SUPPORTED", "EIO"])
def test_a_device_whose_name_cannot_be_read_costs_no_more_than_its_own_verdict(word: str) -> None:
    device = {"name": {"error": word}, "vendor": "1d0f", "ports": [{"port": 1, "state": "1: DOWN"}]}
    collectors = {"rdma": Collected(Status.READ, {"devices": [device]})}
    node = Node(Target("gpu001", instance_type="p5.48xlarge"), NodeEvidence("gpu001", collectors))
    for check in node_checks().values():
        assert evaluate(check, node).verdict is not Verdict.PASS or "rdma" not in check.collectors


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**30, -(10**300)])
def test_a_number_that_no_count_or_size_can_be_is_not_understood(value: float) -> None:
    with pytest.raises(Incomplete, match="not understood"):
        assert Gpu(0, {"power_limit_w": value}).power_limit_w


def test_a_fact_that_cannot_be_decoded_is_incomplete_every_time() -> None:
    class WithBrokenFact(Node):
        @collected_by("boot")
        def broken(self, collector: CollectorData) -> str:
            return str(collector.value["no such key"])

    node = WithBrokenFact(Target("gpu001"), NodeEvidence("gpu001", {"boot": Collected(Status.READ, {})}))
    for _ in range(2):
        with pytest.raises(Incomplete, match=r"broken could not be understood: KeyError: 'no such key' \(test_facts"):
            assert node.broken


def test_a_node_whose_reading_breaks_costs_its_group_nothing() -> None:
    group = Group([Node(Target(name), NodeEvidence(name, {})) for name in ("gpu001", "gpu002", "gpu003")])

    def speed(node: Node) -> dict[str, str | None]:
        return {"speed": "fast" if node.name != "gpu003" else str(1 / 0)}

    assert group.counts("speed", speed) == {"speed": {"fast": 2}}
    assert group.most("speeds", lambda node: [str(speed(node)["speed"])]) == frozenset()


def test_root_is_advised_for_what_a_node_may_not_read_and_not_for_what_aws_refuses() -> None:
    node = Node(Target("gpu001"), NodeEvidence("gpu001", {"kernel_log": Collected(Status.DENIED)}))
    refused = Collected(Status.DENIED, detail="DescribeCluster: not authorized to perform sagemaker:DescribeCluster")
    cluster = Cluster("small", "hyperpod", (node.target,), {"arn": "arn:aws:sagemaker:us-east-1:1:cluster/a"})
    facts = ClusterFacts(cluster, NodeEvidence("small", {"hyperpod": refused}), {})
    with pytest.raises(Incomplete, match="kernel_log: may not be read; run as root, or with --sudo"):
        assert node.kernel_events
    with pytest.raises(Incomplete, match=r"hyperpod: may not be read \(DescribeCluster: not authorized .*\)\Z"):
        assert facts.hyperpod


@pytest.mark.parametrize(
    ("detail", "uid", "ends"),
    [
        ("/dev/kmsg: Permission denied", 1000, "(/dev/kmsg: Permission denied); run as root, or with --sudo"),
        ("/dev/kmsg: Operation not permitted", 0, "(/dev/kmsg: Operation not permitted)"),
        ("another namespace; expected the node's own", 1000, "(another namespace; expected the node's own)"),
    ],
    ids=["a user", "root already", "its own words say what to do"],
)
def test_root_is_not_advised_where_root_would_not_help(detail: str, uid: int, ends: str) -> None:
    collectors = {
        "kernel_log": Collected(Status.DENIED, detail=detail),
        "boot": Collected(Status.READ, {"uid": uid}),
    }
    node = Node(Target("gpu001"), NodeEvidence("gpu001", collectors))
    with pytest.raises(Incomplete) as denied:
        assert node.kernel_events
    assert str(denied.value).endswith(ends)


@pytest.mark.long
def test_a_fact_that_cannot_be_read_keeps_nothing_of_who_asks_for_it() -> None:
    class Large:
        pass

    node = Node(Target("gpu001"), NodeEvidence("gpu001", {"kernel_log": Collected(Status.DENIED)}))

    def ask() -> weakref.ref[Large]:
        large = Large()
        with pytest.raises(Incomplete):
            assert node.kernel_events
        return weakref.ref(large)

    references = [ask(), ask()]
    assert node.facts
    gc.collect()
    assert [reference() for reference in references] == [None, None]
