"""EC2's instance metadata service: whether it answers, and maintenance that AWS has scheduled."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.facts_ec2 import HTTP_OK, Metadata
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight]


@mark.ami
@mark.hyperpod_node_debugger("D")
@evidence(
    "curl -si http://169.254.169.254/latest/meta-data/; "
    "curl -si -X PUT http://169.254.169.254/latest/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 60'"
)
def test_imds_v2(node: Node) -> None:
    """Instance metadata service.

    IMDSv2 answers only requests that carry a token. If a token is required, lifecycle scripts that send none get no
    answer. If it is not required, any program that can be tricked into fetching a URL can read the instance's
    credentials.

    Remedy (fix configuration): Require tokens: aws ec2 modify-instance-metadata-options --instance-id ID --http-tokens
    required --http-endpoint enabled.
    """
    service = _metadata(node)
    with part:
        concern_if(
            service.token != HTTP_OK, f"the metadata service refuses a token with HTTP {service.token}; expected 200"
        )
    concern_if(
        service.without_token == HTTP_OK,
        "the metadata service answers without a token; expected HTTP 401, as IMDSv2 requires",
    )


@mark.prolog
@mark.hyperpod_node_debugger("F")
@evidence(
    "T=$(curl -s -X PUT http://169.254.169.254/latest/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 60'); "
    'curl -s -H "X-aws-ec2-metadata-token: $T" http://169.254.169.254/latest/meta-data/events/maintenance/scheduled'
)
def test_scheduled_events(node: Node) -> None:
    """Scheduled events of the instance.

    Remedy (replace): Drain the node before that date, then have the instance replaced, or stop and start it yourself.
    """
    ahead = [event for event in _metadata(node).events if event.is_ahead]
    seen = ", ".join(f"{event.code} from {event.not_before}" for event in ahead)
    concern_if(ahead, f"scheduled: {seen}; expected no event")


def _metadata(node: Node) -> Metadata:
    try:
        return node.metadata
    except Absent:
        not_applicable("this is not an EC2 instance")
