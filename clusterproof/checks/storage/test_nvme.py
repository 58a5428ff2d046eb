"""NVMe disks: are they all there, alive, and in use?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, fail_if, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import NvmeController

pytestmark = [mark.storage, mark.preflight, mark.ami]


@mark.hyperpod_node_debugger("D")
@evidence("nvme list; lsblk -o NAME,MODEL,SIZE,TYPE,MOUNTPOINT")
def test_nvme_scratch(node: Node) -> None:
    """Local NVMe disks.

    Only the machine's own disks are counted, not EBS volumes. One that is in no mounted file system, nor in a mounted
    array or volume, is scratch space that nobody uses: caches and checkpoints then fill the root volume.

    Remedy (fix configuration): A missing disk: stop and start the instance, or replace the node. Otherwise look at what
    should have mounted them (the image's service, the lifecycle script).
    """
    local = [controller for controller in node.nvme_controllers if controller.is_local]
    expected = known(lambda: int(node.of_type("nvme")), 0)
    if not (expected or local):
        not_applicable(f"{node.type_name or 'this node'} has no local NVMe disk")
    fail_if(len(local) < expected, f"{len(local)} local NVMe disks; expected {expected}")
    disks = [*each(local, lambda controller: (controller.label, controller.disks))]
    bare = ", ".join(label for label, has in disks if not has)
    fail_if(bare, f"no disk on {bare}; expected one on each controller")
    every = [disk for _, has in disks for disk in has]
    unused = ", ".join(filter(None, each(every, lambda disk: "" if disk.mounted else disk.name)))
    concern_if(unused, f"not mounted: {unused}; expected every local disk in a mounted file system")


@mark.prolog
@mark.hyperpod_node_debugger("F")
@evidence("cat /sys/class/nvme/*/state")
def test_nvme_state(nvme: NvmeController) -> None:
    """NVMe controller state.

    The controller is being reset, is dead or was given up by the driver. What is on its disk cannot be read. Media
    errors are in the kernel log; the disk's own counters need a program run as root, and are not read.

    Remedy (replace): Search the kernel log for nvme. Replace the node if the controller does not return to live.
    """
    assert nvme.state == "live", f"{known(lambda: nvme.model, 'the controller')} is {nvme.state}; expected live"
