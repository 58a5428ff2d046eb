"""The forms of lines about the kernel itself, disks and networks, and the event made of each."""

from __future__ import annotations

import re

from clusterproof.plugins.catalog.log_words import ena_error
from clusterproof.plugins.evidence.kernel_log.events_host import (
    DiskEvent,
    EnaMessage,
    HostEvent,
    LinkDown,
    Oops,
    TableFull,
    Throttled,
)
from clusterproof.plugins.evidence.kernel_log.forms_hardware import LONGEST_WORDS, Form, Make, form
from clusterproof.plugins.evidence.kernel_log.line import ADDRESS, pci_address


class Disks:
    """Which file systems the kernel has stopped writing to: only of these is a mount an event."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    def followed(self, event: HostEvent | None) -> HostEvent | None:
        """The event, unless it is a mount of a file system that had not failed."""
        if not isinstance(event, DiskEvent):
            return event
        if event.stops_writes:
            self._stopped.add(event.device)
        elif event.kind == "fresh":
            if event.device not in self._stopped:
                return None
            self._stopped.remove(event.device)
        return event


def _oops(found: re.Match[str], time: float | None) -> Oops:
    return Oops(found[0].strip()[:LONGEST_WORDS], time)


def _disk(kind: str, words: str) -> Make:
    return lambda found, time: DiskEvent(found[1], kind, words, time)


def _ena(found: re.Match[str], time: float | None) -> EnaMessage | None:
    row = ena_error(found[3])
    return EnaMessage(found[2] or pci_address(found[1]), found[3].strip(), time) if row else None


def _link_down(found: re.Match[str], time: float | None) -> LinkDown:
    return LinkDown(found[2] or pci_address(found[1]), found[3].lower(), time)


# A user's own image is mounted through loop devices; what ram disks, network block devices and empty drives say is
# nothing of the node's disks.
_DISK = r"((?!loop|z?ram|nbd|fd|sr)[\w!.-]{1,60})"
_DIED = r"[0-9a-f]{4,16} \[#\d{1,6}\](?: [A-Z]|\s*\Z)"

# Where the words come from, in Linux: arch/x86/mm/fault.c, arch/x86/kernel/dumpstack.c, arch/arm64/mm/fault.c,
# lib/bug.c; drivers/thermal/intel/therm_throt.c (older ones in arch/x86/kernel/cpu/mce); fs/ext4/super.c,
# fs/jbd2/journal.c, fs/xfs/xfs_fsops.c and xfs_super.c; drivers/nvme/host/pci.c and core.c, block/blk-core.c;
# drivers/net/ethernet/amazon/ena; net/core/neighbour.c, net/netfilter/nf_conntrack_core.c;
# drivers/net/ethernet/mellanox/mlx5/core/events.c and en_main.c.
DEVICE_FORMS: tuple[Form, ...] = (
    (
        "bug: ",
        form(r"BUG: (?:kernel NULL pointer dereference, address|unable to handle (?:kernel |page fault)).{0,60}"),
        _oops,
    ),
    ("kernel bug at", form(r"kernel BUG at [\w./-]{1,200}:\d{1,7}!"), _oops),
    ("unable to handle", form(r"Unable to handle kernel [\w ]{1,60} at virtual address [0-9a-f]{1,16}"), _oops),
    ("oops", form(rf"(?:Internal error: )?Oops(?: - [\w ]{{1,40}})?: (?:[a-z ]{{1,40}}: |Oops: )?{_DIED}"), _oops),
    (
        "[#",
        form(rf"(?:general protection fault(?:, .{{1,80}})?|invalid opcode|stack segment|divide error): {_DIED}"),
        _oops,
    ),
    (
        "temperature",
        form(r"(?:mce: )?CPU\d{1,6}: Package temperature (?:is )?above threshold, cpu clock (?:is )?throttled"),
        lambda _, time: Throttled(time),
    ),
    ("ext4-fs error", form(rf"EXT4-fs error \(device {_DISK}\)"), _disk("error", "ext4 found an error")),
    (
        "aborting journal",
        form(rf"Aborting journal on device {_DISK}-\d{{1,10}}\."),
        _disk("error", "its journal ended"),
    ),
    (
        "remounting",
        form(rf"EXT4-fs \({_DISK}\): Remounting filesystem read-only"),
        _disk("read_only", "ext4 writes no more"),
    ),
    (
        "ext4-fs (",
        form(rf"EXT4-fs \({_DISK}\): (?:mounted|unmounting) filesystem"),
        _disk("fresh", "mounted or unmounted"),
    ),
    (
        "xfs (",
        form(
            rf"XFS \({_DISK}\): (?:xfs_do_force_shutdown|Filesystem has been shut down"
            r"|Log I/O Error Detected\.  ?Shutting|Corruption of in-memory data.{0,40}? detected\.  ?Shutting)"
        ),
        _disk("shut_down", "XFS has shut it down"),
    ),
    (
        "xfs (",
        form(
            rf"XFS \({_DISK}\): (?:Metadata corruption detected|Corruption detected|metadata I/O error|log I/O error)"
        ),
        _disk("error", "XFS found an error"),
    ),
    (
        "xfs (",
        form(rf"XFS \({_DISK}\): (?:Mounting V\d Filesystem|Unmounting Filesystem)"),
        _disk("fresh", "mounted or unmounted"),
    ),
    ("timeout", form(r"nvme (nvme\d{1,4}): I/O .{1,120}? timeout, "), _disk("late", "a command timed out")),
    (
        "nvme nvme",
        form(
            r"nvme (nvme\d{1,4}): (?:controller is down; will reset|Device not ready; aborting"
            r"|Removing after probe failure|Disabling device after reset failure)"
        ),
        _disk("error", "the controller does not answer"),
    ),
    (
        "error, dev ",
        form(rf"(?:blk_update_request: )?(?:I/O|critical medium) error, dev {_DISK}, sector \d"),
        _disk("error", "a sector could not be read or written"),
    ),
    ("ena ", form(rf"ena ({ADDRESS})(?: ([\w.-]{{1,15}}))?: (.{{1,300}})"), _ena),
    (
        "table overflow",
        form(r"(?:neighbour: )?(\w{1,20}): neighbor table overflow!"),
        lambda found, time: TableFull(found[1].lower(), time),
    ),
    ("table overflow", form(r"Neighbour table overflow\.\s*\Z"), lambda _, time: TableFull("arp_cache", time)),
    (
        "table full",
        form(r"(?:nf_conntrack: ){1,2}table full(?: in netns \d{1,10})?, dropping packet"),
        lambda _, time: TableFull("conntrack", time),
    ),
    (
        "mlx5_core ",
        form(
            rf"mlx5_core ({ADDRESS})(?: ([\w.-]{{1,15}}))?: (?:\w{{1,40}}:\d{{1,6}}:\(pid \d{{1,10}}\): )?"
            r"(?:Port module event(?:\[error\])?: module \d{1,4}, )?(Link down|Cable unplugged|Cable error)"
        ),
        _link_down,
    ),
)
