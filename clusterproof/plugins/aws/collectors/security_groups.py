"""The security groups of the cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import Description, networks
from clusterproof.plugins.core.cluster import Cluster

EVERYWHERE = ("0.0.0.0/0", "::/0")


def read(account: Account, cluster: Cluster) -> object:
    """Each with its rules: the protocol (`-1`: all traffic), the groups it names, and whether it is for everywhere."""
    ids = sorted({group for network in networks(account, cluster).values() for group in network.security_groups})
    data = account.listed("ec2", "describe_security_groups", "SecurityGroups", GroupIds=ids) if ids else ()
    return {
        "groups": [
            {
                "GroupId": group["GroupId"],
                "inbound": _rules(group.get("IpPermissions", ())),
                "outbound": _rules(group.get("IpPermissionsEgress", ())),
            }
            for group in data
        ]
    }


def _rules(data: Iterable[Description]) -> list[dict[str, object]]:
    return [
        {
            "protocol": rule["IpProtocol"],
            "groups": [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", ()) if "GroupId" in pair],
            "everywhere": any(_ranges(rule) & {where} for where in EVERYWHERE),
        }
        for rule in data
    ]


def _ranges(rule: Description) -> set[str]:
    return {
        *(str(one.get("CidrIp")) for one in rule.get("IpRanges", ())),
        *(str(one.get("CidrIpv6")) for one in rule.get("Ipv6Ranges", ())),
    }
