"""What deep health checks logged in CloudWatch: it explains an unwell node, and accuses none."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from clusterproof.plugins.aws.collectors.hyperpod_logs import MAX_ERRORS
from clusterproof.plugins.core.verdict import Verdict
from tests.aws.cluster_faults import node_failed, node_under_check
from tests.aws.cluster_runs import CHECKS, findings_of, messages
from tests.aws.clusters import ID, NAME, client, instance_id, with_cluster
from tests.aws.ec2 import Vpc
from tests.aws.service import DENIED, Service
from tests.builders.runs import Runs

pytest_plugins = ["pytester"]
GROUP = f"/aws/sagemaker/Clusters/{NAME}/{ID}"
ILL, WELL = instance_id("workers-1"), instance_id("workers-2")
# As in SageMaker's documentation, which shows no instance's id in the line nor in the stream's name.
FAULTY = (
    "Encountered FaultyInstance. Replace the Instance. Region: us-west-2, InstanceType: p4d.24xlarge. "
    "ERROR:Bandwidth has less than threshold: Expected minimum threshold :80,NCCL Test output Bw: 30"
)


def line(message: str, level: str = "error") -> str:
    return json.dumps({"level": level, "ts": "2024-06-18T21:15:22Z", "msg": message})


def logged(service: Service, *lines: str, stream: str = "DeepHealthCheckResults/1718745322") -> None:
    """Log these lines now, one each millisecond."""
    logs: Any = client(service, "logs")
    logs.create_log_group(logGroupName=GROUP)
    logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    begin = int(time.time() * 1000)
    events = [{"timestamp": begin + number, "message": text} for number, text in enumerate(lines)]
    logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def ran(runs: Runs) -> dict[str, Verdict]:
    """The findings of the nodes' states."""
    runs.run("--cluster", NAME, "--results", str(runs.results_file), CHECKS, "-k", "test_nodes_running")
    return findings_of(runs)


@pytest.mark.parametrize("put", [node_failed, node_under_check])
def test_errors_of_an_unwell_node_or_of_none_are_shown_and_not_those_of_others(
    runs: Runs, service: Service, put: Any
) -> None:
    vpc: Vpc = with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)})
    put(service, vpc)
    logged(service, line(f"DCGM error on {WELL}"), line(f"EFA error on {ILL}"), line("no error", "info"), line(FAULTY))
    asked: list[dict[str, Any]] = []
    service.requests["FilterLogEvents"] = asked.append
    assert ran(runs) == {"nodes_running": Verdict.FAIL}
    assert {(request["logGroupName"], request["logStreamNamePrefix"]) for request in asked} == {
        (GROUP, "DeepHealthCheckResults/")
    }
    assert f"deep health checks logged of {ILL} at " in messages(runs)
    assert f": EFA error on {ILL}, of a node that they do not name at " in messages(runs)
    assert f": {FAULTY}"[:200] in messages(runs)
    assert WELL not in messages(runs)
    assert "no error" not in messages(runs).replace("expected no error", "")


def test_a_stream_that_is_called_by_an_instance_is_of_it_and_a_line_without_form_is_shown(
    runs: Runs, service: Service
) -> None:
    node_failed(service, with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)}))
    logged(service, *(f"error {number}" for number in range(5)), stream=f"DeepHealthCheckResults/workers/{ILL}")
    assert ran(runs) == {"nodes_running": Verdict.FAIL}
    assert f"of {ILL} at " in messages(runs)
    assert ": error 4, 2 before; expected no error" in messages(runs)


def test_an_error_is_shown_however_many_lines_of_another_level_come_after_it(runs: Runs, service: Service) -> None:
    node_failed(service, with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)}))
    logged(service, line(f"EFA error on {ILL}"), *[line("no error", "info")] * MAX_ERRORS)
    assert ran(runs) == {"nodes_running": Verdict.FAIL}
    assert f": EFA error on {ILL}; expected no error" in messages(runs)


def test_a_denied_log_names_the_action(runs: Runs, service: Service) -> None:
    node_failed(service, with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)}))
    service.says("FilterLogEvents", DENIED)
    assert ran(runs) == {"nodes_running": Verdict.FAIL}
    assert "logs:FilterLogEvents is not allowed to this identity" in messages(runs)


def test_a_cluster_that_has_logged_nothing_is_no_gap(runs: Runs, service: Service) -> None:
    node_failed(service, with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)}))
    assert ran(runs) == {"nodes_running": Verdict.FAIL}
    assert [result.observed for result in runs.results] == [f"{ILL} (workers) is Failure: disk"]


def test_the_log_is_not_read_while_every_node_runs(runs: Runs, service: Service) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)})
    logged(service, line(FAULTY))
    assert ran(runs) == {}
    assert "FilterLogEvents" not in service.calls
