"""`--refresh-catalog [REGION]`: compares the catalogue of instance types with EC2's data. Changes nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable

EQUAL, DIFFERS = 0, 1
USAGE = pytest.ExitCode.USAGE_ERROR
REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d")
PERFORMANCE = re.compile(r"(?:(\d{1,4})x )?(\d{1,6})(?:\.0)? Gigabit")


class RefreshError(ClusterproofError):
    """EC2 could not be asked, or its answer cannot be understood; the message is one line."""


@dataclass(frozen=True, slots=True)
class OfferedType:
    """EC2's data on an instance type, by the catalogue's field names; None: not reported."""

    gpus: int
    gpu_model: str | None
    gpu_memory_mib: int | None
    neuron_devices: int | None
    efa: int
    network_gbps: int | None
    vcpus: int
    memory_mib: int
    nvme: int
    nvme_gb: int | None


FIELDS = tuple(field.name for field in fields(OfferedType))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between catalogue and EC2, in lines; `compared` counts the types in both."""

    differences: tuple[str, ...]
    missing: tuple[str, ...]
    not_offered: tuple[str, ...]
    compared: int


def refresh_catalog(region: str) -> int:
    """Compare with EC2 in a region (empty: the configured one), print the differences, and return the exit code."""
    try:
        if region and not REGION.fullmatch(region):
            raise RefreshError(f"{printable(region, 40)!r} is not a region; expected one such as us-east-1")
        offered, queried_region = types_of_ec2(region)
    except RefreshError as problem:
        sys.stderr.write(f"ERROR: --refresh-catalog: {problem}\n")
        return int(USAGE)
    comparison = compare(instance_types(), offered)
    sys.stdout.write("".join(f"{line}\n" for line in lines(comparison, queried_region)))
    return DIFFERS if comparison.differences or comparison.missing or not comparison.compared else EQUAL


def lines(comparison: Comparison, region: str) -> list[str]:
    """The output: one line for each difference, then a summary."""
    not_offered = f"; not offered in {region}: {', '.join(comparison.not_offered)}" if comparison.not_offered else ""
    count = len(comparison.differences) + len(comparison.missing)
    summary = f"{comparison.compared} types compared with EC2 in {region}, {count} differences{not_offered}"
    return [*comparison.differences, *comparison.missing, summary]


def compare(rows: Mapping[str, InstanceType], offered: Mapping[str, OfferedType]) -> Comparison:
    """Compare the catalogue's rows with EC2: fields that EC2 reports, and types with GPUs or Neuron and EFA."""
    both = sorted(rows.keys() & offered.keys())
    return Comparison(
        differences=tuple(line for name in both for line in _differences(rows[name], offered[name])),
        missing=tuple(
            f"{name}: missing in the catalogue; EC2 has {_in_words(offered[name])}"
            for name in sorted(offered.keys() - rows.keys())
            if offered[name].efa and (offered[name].gpus or offered[name].neuron_devices)
        ),
        not_offered=tuple(sorted(rows.keys() - offered.keys())),
        compared=len(both),
    )


def _differences(row: InstanceType, offered: OfferedType) -> Iterable[str]:
    for name in FIELDS:
        ours, theirs = getattr(row, name), getattr(offered, name)
        if name == "neuron_devices" and theirs is None:
            continue
        if ours != theirs and (ours or theirs):  # 0 and not reported are equal
            yield f"{row.name}: {name} is {_value(ours)} in the catalogue; EC2 has {_value(theirs)}"


def _value(value: object) -> str:
    return "not known" if value is None else str(value)


def _in_words(offered: OfferedType) -> str:
    values = {name: getattr(offered, name) for name in FIELDS}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value)


def types_of_ec2(region: str) -> tuple[dict[str, OfferedType], str]:
    """Every instance type of EC2 in a region (empty: the configured one), by name, and that region.

    Raises RefreshError.
    """
    try:
        account = Account(region)
        answers = list(account.listed("ec2", "describe_instance_types", "InstanceTypes"))
    except ImportError:
        raise RefreshError("boto3 is not installed; pip install boto3") from None
    except AwsError as problem:
        raise RefreshError(printable(str(problem), 300)) from None
    return {str(entry.get("InstanceType")): offered_type(entry) for entry in answers}, account.region


def offered_type(answer: Mapping[str, Any]) -> OfferedType:
    """The catalogue's fields from an EC2 answer. Raises RefreshError if it is invalid."""
    try:
        gpus = answer.get("GpuInfo", {}).get("Gpus", [])
        disks = answer.get("InstanceStorageInfo", {}).get("Disks", [])
        neuron = answer.get("NeuronInfo", {}).get("NeuronDevices", [])
        is_unsaid = "NeuronInfo" not in answer and str(answer.get("InstanceType")).startswith(("trn", "inf"))
        network = answer["NetworkInfo"]
        return OfferedType(
            gpus=sum(gpu["Count"] for gpu in gpus),
            gpu_model=gpus[0]["Name"] if gpus else None,
            gpu_memory_mib=gpus[0]["MemoryInfo"]["SizeInMiB"] if gpus else None,
            neuron_devices=None if is_unsaid else sum(device["Count"] for device in neuron),
            efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
            network_gbps=_gbps(str(network["NetworkPerformance"])),
            vcpus=answer["VCpuInfo"]["DefaultVCpus"],
            memory_mib=answer["MemoryInfo"]["SizeInMiB"],
            nvme=sum(disk["Count"] for disk in disks),
            nvme_gb=disks[0]["SizeInGB"] if disks else None,
        )
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        name = printable(str(answer.get("InstanceType")), 40)
        raise RefreshError(f"EC2's answer about {name} is not understood: no {problem}") from None


def _gbps(performance: str) -> int | None:
    """`8x 100 Gigabit` as a number; None if not fixed, such as `Up to 25 Gigabit`."""
    fixed = PERFORMANCE.fullmatch(performance)
    return int(fixed[1] or 1) * int(fixed[2]) if fixed else None
