"""`ec2:tag:Key=Value`, `ec2:i-…,i-…` and `asg:NAME`: EC2 instances by tag, id or Auto Scaling group, through SSM."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.aws.resources import AT_ONCE, portions, reserved
from clusterproof.plugins.core.cluster import INSTANCE_ID, Cluster, InventoryError, Target
from clusterproof.plugins.core.message import listed, printable

INSTANCE = re.compile(INSTANCE_ID)
TAG = re.compile(r"tag:(?P<key>[^=]{1,128})=(?P<value>.{0,256})")
FORMS = "ec2:tag:Key=Value or ec2:i-0123456789abcdef0,…"
THERE = ["pending", "running", "stopping", "stopped"]  # states; terminated instances are still listed for an hour
EFA_INTERFACES = ("efa", "efa-only")  # kinds of network interfaces that have an EFA device


def ec2(rest: str, options: Mapping[str, str]) -> Cluster:
    """Running instances by tag, or those with these ids. Raises InventoryError."""
    tag = TAG.fullmatch(rest)
    ids = [word.strip() for word in rest.split(",") if word.strip()]
    strangers = [word for word in ids if not INSTANCE.fullmatch(word)]
    if not tag and (strangers or not ids):
        wrong = f"{strangers[0][:40]!r} is not an instance id" if strangers else "it names no instance"
        raise InventoryError(f"--cluster 'ec2:{rest:.80}': {wrong}; expected {FORMS}")
    account = _account(f"ec2:{rest}", options)
    try:
        instances = list(_by_tag(account, tag["key"], tag["value"]) if tag else _by_id(account, ids))
    except AwsError as problem:
        raise InventoryError(f"--cluster 'ec2:{rest:.80}': {problem}") from None
    return _cluster(f"ec2:{rest}", account, instances)


def asg(rest: str, options: Mapping[str, str]) -> Cluster:
    """The instances of an Auto Scaling group. Raises InventoryError."""
    if not rest.strip():
        raise InventoryError("--cluster 'asg:' names no Auto Scaling group; expected asg:NAME")
    account = _account(f"asg:{rest}", options)
    try:
        response = account.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[rest])
        groups = response["AutoScalingGroups"]
        if not groups:
            raise InventoryError(f"no Auto Scaling group {rest!r:.80} in {account.region}; expected one of that name")
        ids = [str(instance["InstanceId"]) for instance in groups[0].get("Instances", ())]
        instances = list(_by_id(account, ids))
    except AwsError as problem:
        raise InventoryError(f"--cluster 'asg:{rest:.80}': {problem}") from None
    return _cluster(rest, account, instances)


def _by_tag(account: Account, key: str, value: str) -> Iterator[Mapping[str, Any]]:
    filters = [{"Name": f"tag:{key}", "Values": [value]}, {"Name": "instance-state-name", "Values": THERE}]
    return reserved(account, Filters=filters)


def _by_id(account: Account, ids: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for some in portions(ids, AT_ONCE):
        yield from reserved(account, InstanceIds=some)


def _cluster(name: str, account: Account, instances: list[Mapping[str, Any]]) -> Cluster:
    running = [instance for instance in instances if instance["State"]["Name"] == "running"]
    others = [
        f"{instance['InstanceId']} is {instance['State']['Name']}"
        for instance in instances
        if instance["State"]["Name"] != "running"
    ]
    if not running:
        raise InventoryError(f"{name:.80} in {account.region} has no running instance; expected at least one")
    targets = tuple(_target(instance) for instance in sorted(running, key=lambda data: str(data["InstanceId"])))
    notes = (f"not validated: {len(others)} that do not run ({listed(others)})",) if others else ()
    return Cluster(name, "ssm", named_apart(targets), {"region": account.region}, notes)


def efa_attached(instance: Mapping[str, Any]) -> int | None:
    """How many network interfaces of an instance in DescribeInstances are EFA's; None if none is listed."""
    kinds = [
        interface["InterfaceType"]
        for interface in instance.get("NetworkInterfaces", ())
        if interface.get("InterfaceType")
    ]
    return sum(kind in EFA_INTERFACES for kind in kinds) if kinds else None


def _target(instance: Mapping[str, Any]) -> Target:
    """Named by its tag Name, else by its private DNS name, else by its id."""
    tags = {str(tag["Key"]): str(tag["Value"]) for tag in instance.get("Tags", ())}
    dns = str(instance.get("PrivateDnsName", "")).partition(".")[0]
    return Target(
        name=printable(" ".join(tags.get("Name", "").split())) or dns or str(instance["InstanceId"]),
        address=str(instance["InstanceId"]),
        group=tags.get("aws:autoscaling:groupName", ""),
        instance_type=str(instance.get("InstanceType", "")),
        efa_attached=efa_attached(instance),
    )


def named_apart(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """Unique names: nodes with duplicate names, as is common with Name tags, get the last part of their address."""
    by_id = {target.address.rpartition("_")[2]: target for target in targets}
    taken = Counter(name for own_id, target in by_id.items() for name in {target.name, own_id})
    return tuple(
        target if taken[target.name] == 1 else replace(target, name=own_id) for own_id, target in by_id.items()
    )


def _account(text: str, options: Mapping[str, str]) -> Account:
    try:
        return Account(options.get("region", ""), options.get("profile", ""))
    except AwsError as problem:
        raise InventoryError(f"--cluster {text!r:.80}: {problem}") from None
