"""Every check says of a node that was not reached only that."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.result import UNREACHABLE
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.recordings import unreached


@pytest.mark.parametrize("instance_type", ["", "p5.48xlarge", "trn2.48xlarge"])
def test_what_no_check_could_read_is_that_the_node_was_not_reached_and_nothing_more(instance_type: str) -> None:
    cluster = Cluster("x", "ssh", (Target("gpu001", instance_type=instance_type),))
    node = nodes(cluster, {"gpu001": unreached("gpu001")})["gpu001"]
    results = [evaluate(check, node) for check in node_checks().values()]
    missing = [result for result in results if result.verdict is Verdict.INCOMPLETE]
    assert len(missing) > 100
    others = {
        result.check: result.message
        for result in missing
        if [finding.cause.startswith(UNREACHABLE) for finding in result.findings] != [True]
    }
    assert others == {}
