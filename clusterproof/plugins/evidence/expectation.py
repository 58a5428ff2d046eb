"""What a node is expected to have: its instance type, and the numbers that follow from it."""

from __future__ import annotations

from clusterproof.plugins.catalog import InstanceType, instance_types
from clusterproof.plugins.catalog.instance_types import machine_row, machine_type
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.facts_ec2 import Metadata
from clusterproof.plugins.evidence.aws.facts_hyperpod import ResourceConfig
from clusterproof.plugins.evidence.fact import collected_as, collected_by
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.host.facts import (
    Boot,
    Platform,
)

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


EC2 = "Amazon EC2"  # the vendor in an instance's firmware
UNKNOWN_TYPE = "instance type unknown"
OWNER_KEYS = ("memory_mib", "vcpus", "nvme")  # configurable on machines outside EC2
WITHOUT_NVLINKS = {"nvswitch": False, "nvswitches": 0}  # implied by `nvlinks=0`
WITHOUT_GPUS = {"nvlinks_per_gpu": 0, **WITHOUT_NVLINKS}  # implied by `gpus=0`


class UnknownType(Incomplete):
    """Its type is unknown."""


@collected_by()
def instance_type(node: Node) -> str:
    """Its EC2 instance type, from the inventory, metadata service or DMI; elsewhere the machine (`DGX H100`).

    Raises Incomplete where it is unknown.
    """
    if node.target.instance_type:
        return node.target.instance_type.removeprefix("ml.")
    if node.instance_type_by_metadata:
        return node.instance_type_by_metadata
    if node.platform.vendor == EC2:
        return node.platform.product
    machine = machine_type(node.platform.vendor, node.platform.product, _gpu_devices(node))
    if machine:
        return machine
    raise _unknown(node)


def _unknown(node: Node, what: str = "") -> UnknownType:
    """The exception for an unknown type; `what` is the number that would be sufficient instead."""
    by_slurm = f"set instance_type in slurm.toml, or {what or '[expect]'}{' under [expect]' * bool(what)} in a policy"
    by_hand = f"give --instance-type or --expect{f' {what}=N' * bool(what)}"
    return UnknownType(f"the instance type is unknown; {by_slurm if node.drains else by_hand}", cause=UNKNOWN_TYPE)


def _gpu_devices(node: Node) -> list[str]:
    """The PCI device ids of its GPUs, as far as the bus shows them."""
    try:
        return [device.device for device in node.gpus_on_bus]
    except (Incomplete, NotApplicable):
        return []


platform = collected_as("platform", Platform)
metadata = collected_as("imds", Metadata)
resource_config = collected_as("resource_config", ResourceConfig)


@collected_by()
def instance_type_by_metadata(node: Node) -> str:
    """Its instance type according to EC2's metadata service; empty if unknown."""
    try:
        return node.metadata.identity.instance_type
    except (Incomplete, NotApplicable):
        return ""


@collected_by()
def instance_id(node: Node) -> str:
    """Its EC2 instance id. Raises Incomplete."""
    return node.metadata.identity.instance_id


@collected_by()
def type_row(node: Node) -> InstanceType:
    """Its row in the catalogue of instance types. Raises Incomplete if there is none."""
    row = node.catalog.instance_type(node.instance_type)
    if row is None and node.is_build_host:
        nothing = InstanceType(name=node.instance_type, source="")
        return replace(nothing, gpus=0, nvlinks_per_gpu=0, nvswitch=False, efa=0, neuron_devices=0)
    if row is None:
        near = _near_type(node.instance_type)
        remedy = (
            "set gpus, nvswitch and efa under [expect] in a policy"
            if node.drains
            else "give --expect gpus=N,nvswitch=N,efa=N"
        )
        raise Incomplete(
            f"instance type {node.instance_type!r} is not in the catalogue{near}; {remedy}", cause=UNKNOWN_TYPE
        )
    return row


def _near_type(name: str) -> str:
    """` (did you mean …?)`, from the types of the same family."""
    from clusterproof.plugins.core.strict import nearest  # few types are unknown

    family = name.partition(".")[0]
    return nearest(name, (known for known in instance_types() if known.partition(".")[0] == family))


@collected_by()
def is_build_host(node: Node) -> bool:
    """Whether an image is checked on a machine that only builds it: an EC2 type without accelerators."""
    return node.occasion == "ami" and node.platform.vendor == EC2 and node.catalog.accelerators(node.instance_type) == 0


def expected(node: Node, what: str) -> int:
    """How many `gpus`, `efa` or `nvlinks` (per GPU) it should have. Raises Incomplete if unknown.

    EFA may or may not be attached to an instance, so its type's maximum is not expected.
    """
    if what in node.target.expect:
        return node.target.expect[what]
    if what == "efa":
        return node.efa_attached
    try:
        return int(node.of_type({"nvlinks": "nvlinks_per_gpu"}.get(what, what)))
    except UnknownType as unknown:
        raise _unknown(node, what) from unknown


@collected_by()
def nvlinks_due(node: Node) -> int | None:
    """How many active NVLinks each of its GPUs should have; None if unknown."""
    try:
        return expected(node, "nvlinks")
    except Incomplete:
        return None


@collected_by()
def is_outside_ec2(node: Node) -> bool:
    """Whether the firmware names another vendor, and no EC2 type was given: only EC2 has EFA."""
    return not node.target.instance_type and node.platform.vendor not in ("", EC2)


def of_type(node: Node, what: str) -> Any:
    """A value of its instance type, or what `expect` says in its place. Raises Incomplete where the catalogue does not
    know it, NotApplicable where no training node is of this type, `expect` describes a node whose type is unknown, or
    it is a machine's whose owner chooses it.
    """
    expected = node.target.expect
    if what in WITHOUT_GPUS and expected.get("gpus") == 0:
        return WITHOUT_GPUS[what]
    if what in WITHOUT_NVLINKS and expected.get("nvlinks") == 0:
        return WITHOUT_NVLINKS[what]
    if what in ("nvswitch", "nvswitches") and "nvswitch" in expected:
        return expected["nvswitch"]
    try:
        value = getattr(node.type, what)
    except Incomplete as unknown:
        if what in OWNER_KEYS and "gpus" in expected:
            raise NotApplicable("its type is unknown, and what is expected of it has only devices") from unknown
        if what in WITHOUT_NVLINKS and isinstance(unknown, UnknownType):
            raise _unknown(node, "nvswitch") from unknown
        raise
    if value is None and node.is_build_host:
        raise NotApplicable(f"{node.instance_type} only builds the image: nobody says what {what} it should have")
    if value is None and what in OWNER_KEYS and machine_row(node.type.name):
        raise NotApplicable(f"the owner of a {node.type.name} chooses its {what}, and no policy says it")
    if value is None:
        raise Incomplete(f"the catalogue has no {what} for {node.instance_type}", cause="not in the catalogue")
    return value


boot = collected_as("boot", Boot)


@collected_by()
def same_machine(node: Node) -> tuple[str, ...]:
    """Other nodes of its group that are the same machine, by boot id; none if unknown."""
    shared = node.group.shared("boot ids", _boot_ids)
    return tuple(name for boot_id in _boot_ids(node) for name in shared.get(boot_id, ()) if name != node.name)


def _boot_ids(node: Node) -> list[str]:
    """Its boot id, if known."""
    boots = [reading["boot"] for reading in [readings(node, "boot")[0]] if reading]
    return [of["boot_id"] for boot in boots if (of := readings(boot, "boot_id")[0]).get("boot_id")]
