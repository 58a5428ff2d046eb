"""The account's service quotas: do they allow the cluster that there is, and the nodes that it wants?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.facts_account import needs
from clusterproof.plugins.evidence.cluster import ClusterFacts

pytestmark = [mark.control_plane, mark.preflight, mark.hyperpod_node_debugger("C")]


@evidence("aws service-quotas list-service-quotas --service-code sagemaker | vpc | ec2")
def test_service_quotas(cluster: ClusterFacts) -> None:
    """Service quotas.

    What a quota must allow is calculated for this cluster alone; others in the account need more. A node uses one
    network interface for each EFA device.

    Remedy (fix configuration): Request a quota increase in the Service Quotas console, in this region.
    """
    data = {(quota.service, quota.name): quota.value for quota in cluster.service_quotas}
    wanted = list(needs(cluster))
    low = [
        f"{need.name} is {data[need.key]:,.0f}, and {need.amount:,} are needed"
        for need in wanted
        if need.amount is not None and need.key in data and data[need.key] < need.amount
    ]
    fail_if(low, f"{', '.join(low)}; expected at least what the cluster needs")
    unread = [need.name for need in wanted if need.key not in data]
    with part:
        if unread:
            incomplete(f"AWS reports no quota {', '.join(unread)}; expected each")
    unknown = [need.name for need in wanted if need.amount is None]
    if unknown:
        incomplete(f"the catalogue lacks an instance type: how much of {', '.join(unknown)} it needs is not known")
