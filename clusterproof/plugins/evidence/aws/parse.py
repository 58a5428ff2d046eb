"""Captured instance identity documents, the output of ec2-metadata, and HyperPod's log of deep health checks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.aws.collect_deep_health_check_log import LOG, MAX_CHARACTERS
from clusterproof.plugins.evidence.parsing import CaptureError, Form, document_in, short

VENDOR = "Amazon EC2"
KEYS = {  # of the identity document, as the collector `imds` calls them; the account's id stays where it is
    "instanceId": "instance_id",
    "instanceType": "instance_type",
    "availabilityZone": "availability_zone",
    "region": "region",
    "imageId": "image_id",
}

_LOGGED = r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\s{1,8}[a-z]{1,10}\s{1,8}|\{.{0,200}\"msg\": ?\")"
_BEGINS = re.compile(rf"\s{{0,99}}{_LOGGED}")  # not within another log, where users may have put it
_OF_CHECK = re.compile(
    rf"^{_LOGGED}(?:Executing Hardware stress check|stress-ng |GpuPci Count check|DCGM diagnostic health|EFA Loopback)",
    re.MULTILINE,
)
NO_LOG = re.compile(rf"\s{{0,80}}cat: {re.escape(LOG)}: No such file or directory\s{{0,80}}")
_TYPE = re.compile(r"^instance-type:[ \t]{1,4}([a-z0-9-]{1,30}\.[a-z0-9-]{1,30})[ \t]*$", re.MULTILINE)


def is_identity(text: str) -> bool:
    """Whether it is an instance's identity document."""
    return '"instanceType"' in text and '"availabilityZone"' in text and '"pendingTime"' in text


def read_identity(text: str) -> Mapping[str, object]:
    """The identity of the collector `imds`, and the collector `platform`. Raises CaptureError."""
    document = document_in(text)
    identity = {name: short(document[key]) for key, name in KEYS.items() if short(document.get(key))}
    if "instance_type" not in identity:
        raise CaptureError("the identity document names no instance type")
    platform = {"vendor": VENDOR, "product": identity["instance_type"]}
    return {"imds": {"identity": identity}, "platform": platform}


def is_metadata(text: str) -> bool:
    """Whether this is the output of ec2-metadata, with the instance type."""
    return bool(_TYPE.search(text))


def read_metadata(text: str) -> Mapping[str, object]:
    """The collector `platform`. Raises CaptureError."""
    instance_type = _TYPE.search(text)
    if not instance_type:
        raise CaptureError("ec2-metadata without an instance type")
    return {"platform": {"vendor": VENDOR, "product": instance_type[1]}}


def is_deep_health_check_log(text: str) -> bool:
    """Whether it is the log of HyperPod's deep health checks on a node, or its end."""
    return bool((_BEGINS.match(text) and _OF_CHECK.search(text)) or NO_LOG.fullmatch(text))


def read_deep_health_check_log(text: str) -> Mapping[str, object]:
    """The collector `deep_health_check_log`."""
    log = "" if NO_LOG.fullmatch(text) else text
    return {"deep_health_check_log": {"log": log[-MAX_CHARACTERS:], "is_cut": len(log) > MAX_CHARACTERS}}


FORMS = (
    Form("log of deep health checks", is_deep_health_check_log, read_deep_health_check_log),
    Form("instance identity document", is_identity, read_identity),
    Form("ec2-metadata", is_metadata, read_metadata),
)
