"""Trainium and Inferentia devices: whether all are there, healthy, linked and free."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import each, known, readings
from clusterproof.plugins.evidence.host.facts import Command, has_just_booted
from clusterproof.plugins.evidence.kernel_log.wording import report, require_whole_log
from clusterproof.plugins.evidence.neuron.facts import Listed, NeuronDevice, parse_neuron_ls
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.neuron, mark.preflight, mark.prolog, mark.hyperpod_node_debugger("F")]

OPTION = "json-output"
COUNTERS = {
    "sram_ecc_uncorrected": "in SRAM",
    "mem_ecc_uncorrected": "in device memory",
    "mem_ecc_repairable_uncorrected": "in device memory that a reload of the driver repairs",
}


@mark.ami
@evidence("neuron-ls; ls -d /sys/devices/virtual/neuron_device/neuron*; lspci -n -d 1d0f: | grep -E ':7.6'")
def test_device_count(node: Node) -> None:
    """Neuron device count.

    Counts the devices that the driver runs and compares them with the instance type. All devices must be of one model,
    with the same number of cores and a different serial each.

    Remedy (reset or reboot): If the bus shows them all, reload the neuron driver (aws-neuronx-dkms for the running
    kernel) and read the kernel log. Otherwise stop and start the instance, or replace the node.
    """
    expected = node.neuron_devices_due
    try:
        count, on_bus = len(node.neuron.devices), readings(node.neuron, "on_bus")[0].get("on_bus", "an unknown number")
    except Absent:
        count, on_bus = 0, 0
    if not (expected or count):
        not_applicable(f"{node.type_name or 'this node'} has no Neuron device")
    with part:
        evaluate_among_devices(node)
    if count < expected and has_just_booted(node):
        incomplete(f"{count} Neuron devices, {node.boot.uptime_s:.0f} s after boot; expected {expected}")
    assert count >= expected, f"{count} Neuron devices, {on_bus} on the PCI bus; expected {expected}"


def evaluate_among_devices(node: Node) -> None:
    """Fail for each device with fewer cores than another; a concern if models differ, or a serial is shared."""
    devices = readings(node, "neuron_devices")[0].get("neuron_devices", ())
    known_of = [readings(device, "index", "cores", "model", "serial")[0] for device in devices]
    for device in devices:
        with part:
            device.cores  # noqa: B018 - raises where it is unknown
    most = max((reading["cores"] for reading in known_of if "cores" in reading), default=0)
    for reading in known_of:
        cores, label = reading.get("cores", most), reading.get("index", "of unknown number")
        fail_if(
            cores < most, f"Neuron device {label} has {cores} cores; expected {most}, like another device of the node"
        )
    models = sorted({reading["model"] for reading in known_of if reading.get("model")})
    concern_if(len(models) > 1, f"devices are {' and '.join(models)}; expected one model")
    serials = Counter(serial for reading in known_of if (serial := reading.get("serial", "")).strip("0"))
    is_of_boards = len(serials) > 1 and len(set(serials.values())) == 1  # each of which has as many devices
    twice = {serial: count for serial, count in serials.items() if count > 1 and not is_of_boards}
    shared = ", ".join(f"{serial[:40]} of {count} devices" for serial, count in twice.items())
    concern_if(shared, f"serial {shared}; expected one each")


@mark.ami
@evidence("grep . /sys/devices/virtual/neuron_device/neuron*/stats/hardware/*_ecc_*uncorrected")
def test_no_uncorrected_ecc(neuron_device: NeuronDevice) -> None:
    """Uncorrected Neuron memory errors.

    Errors are counted since the driver was loaded. Whatever ran since then has used corrupted data.

    Remedy (reset or reboot): For repairable errors, reload the driver or reboot the node. For others, stop and start
    the instance, or replace the node.
    """
    for name, where in COUNTERS.items():
        with part:
            count = getattr(neuron_device, name)
            fail_if(count, f"uncorrected ECC errors: {count} {where}; expected 0")


@mark.epilog
@evidence("dmesg | grep -i neuron")
def test_no_hw_error(node: Node) -> None:
    """Neuron hardware errors.

    The Neuron runtime writes each hardware error to the kernel log, with the action to take. Any user who may open a
    device can cause such a line, so it fails the node only if the device's own counters confirm it; otherwise it is a
    concern. Resets that did not finish, and rack links to the wrong device, are concerns too.

    Remedy (replace): Take the action that the line names: TERMINATE_INSTANCE means stop and start the instance, or
    replace the node.
    """
    errors = node.neuron_hardware_errors
    if not errors and known(lambda: node.neuron_devices_due, None) == 0:
        not_applicable(f"{node.type_name or 'this node'} has no Neuron device")
    counting = devices_with_errors(node)
    confirmed = dict.fromkeys(error.description for error in errors if error.device in counting)
    fail_if(confirmed, f"since boot {', '.join(confirmed)}; expected no hardware error")
    others = dict.fromkeys(error.description for error in errors if error.device not in counting)
    concern_if(others, f"since boot {', '.join(others)}, not confirmed by any counter; expected no hardware error")
    report(node, "neuron.no_hw_error", "every device to work")
    require_whole_log(node)


def devices_with_errors(node: Node) -> set[str]:
    """The numbers of the devices whose counters show errors, as far as they can be read."""
    try:
        counts = [readings(device, "index", *COUNTERS)[0] for device in node.neuron.devices]
    except Incomplete:
        return set()
    return {
        str(counters.pop("index", ""))
        for counters in counts
        if any(counters[name] for name in COUNTERS if name in counters)
    }


@mark.ami
@evidence("neuron-ls --json-output")
def test_devices_answer(node: Node) -> None:
    """Neuron device responsiveness.

    neuron-ls opens every device. A device that it does not list cannot be used, and if neuron-ls hangs, the driver
    hangs. Neuron 2.34 drops the option --json-output, without which the check is incomplete.

    Remedy (reset or reboot): Search the kernel log (journalctl -k | grep neuron). Reload the driver when no job is
    running, or reboot the node; replace the node if that does not help.
    """
    try:
        due = devices_due(node)
    except Incomplete:
        with part:
            require_end(node, "its devices")
        with suppress(Incomplete):
            answer = answered(node)
            fail_if(answer.exit, f"neuron-ls says {answer.output.strip()[:200]}; expected its devices")
        raise
    require_end(node, due)
    try:
        neuron_ls = answered(node)
    except Absent:
        assert node.occasion != "ami", "neuron-ls is not installed; expected Neuron's tools in the image"
        incomplete("neuron-ls is not installed here (aws-neuronx-tools); expected it to list every device")
    with part:
        assert neuron_ls.exit == 0, f"neuron-ls says {neuron_ls.output.strip()[-200:]}; expected {due}"
    run = each(node.neuron_devices, lambda device: device.index)
    missing = sorted(set(run) - {device.index for device in _listed(node)})
    named = ", ".join(str(index) for index in missing)
    assert not missing, f"neuron-ls does not list device {named}; expected all {len(node.neuron_devices)}"


def answered(node: Node) -> Command:
    """What neuron-ls printed. Raises Incomplete if it does not know the option that we ask it with."""
    answer = node.neuron_ls
    if known(lambda: answer.exit, 0) and OPTION in answer.output:
        incomplete(f"neuron-ls does not know --{OPTION}, as from Neuron 2.34 on; expected a list of devices")
    return answer


def require_end(node: Node, due: str) -> None:
    """Fail if neuron-ls hangs. Raises Incomplete in a prolog, in which it has a second and no more."""
    hangs = node.neuron_ls_hangs
    if hangs and node.occasion == "prolog":
        incomplete(f"{hangs}; expected an answer of {due}")
    assert not hangs, f"{hangs}; expected an answer of {due}"


@evidence("neuron-ls --topology; grep . /sys/devices/virtual/neuron_device/neuron*/connected_devices")
def test_connected(neuron_device: NeuronDevice, node: Node) -> None:
    """Neuron links.

    On instance types with 16 Neuron devices, each is linked to four others, and both ends must report the link.
    Collectives inside the node use these links.

    Remedy (replace): Stop and start the instance, or replace the node.
    """
    if len(node.neuron_devices) == 1:
        not_applicable("a single device has no link")
    own = set(neuron_device.connected) - {*readings(neuron_device, "index")[0].values()}
    linked = ", ".join(str(index) for index in sorted(own)) or "none"
    is_torus = node.neuron_devices_due == node.threshold("neuron.torus_devices")
    links = int(node.threshold("neuron.torus_links")) if is_torus else 1
    fail_if(
        len(own) < links, f"linked with {linked}; expected {f'{links} devices' if is_torus else 'others of the node'}"
    )
    index = neuron_device.index
    others = each(node.neuron_devices, lambda other: (other.index, linked_with(other, index)))
    one_sided = sorted(number for number, its_links in others if number in own and index not in its_links)
    named = ", ".join(str(index) for index in one_sided)
    assert not one_sided, f"linked with {named}, which reports no link back; expected both ends to report the link"


def linked_with(device: NeuronDevice, otherwise: int) -> tuple[int, ...]:
    """The devices to which one is linked; if that was not reported, the one that asks."""
    return tuple(readings(device, "connected")[0].get("connected", (otherwise,)))


@mark.epilog
@evidence("neuron-ls")
def test_no_leftover_processes(node: Node) -> None:
    """Processes on idle Neuron devices.

    Remedy (clean up): Find out which job the processes belong to, and kill those that a finished job left running.
    """
    due = devices_due(node)
    held: dict[str, list[str]] = {}
    for device in _listed(node):
        for process in device.processes:
            held.setdefault(process, []).append(str(device.index))
    if held:
        seen = ", ".join(f"{process} on {_devices(indices)}" for process, indices in held.items())
        concern(f"{seen}; expected no process on {due}")


def _devices(indices: list[str]) -> str:
    return f"device{'s' if len(indices) > 1 else ''} {listed(indices)}"


def devices_due(node: Node) -> str:
    """How many devices there are, as text; raises Incomplete if it is unknown whether there are any."""
    try:
        return number_of(len(node.neuron_devices), "device")
    except Incomplete:
        return number_of(node.neuron_devices_due, "device")


def _listed(node: Node) -> tuple[Listed, ...]:
    """The devices that neuron-ls lists. Raises Incomplete."""
    answer = answered(node)
    listed = parse_neuron_ls(answer.output)
    if listed is None:
        incomplete(f"neuron-ls says {answer.output.strip()[:80]!r}; expected a list of devices")
    return listed
