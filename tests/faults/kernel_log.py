"""What the kernel log tells."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.node import with_kernel_line, with_tool, without_file

XID = "NVRM: Xid (PCI:0000:{bus}:00): {text}"

FAULTS = (
    Fault(
        "an Xid of the hardware",
        lambda image: with_kernel_line(image, XID.format(bus="53", text="79, GPU has fallen off the bus.")),
        {"gpu.no_xid": FAIL},
        "Xid 79 (GPU has fallen off the bus) at 0000:53:00.0",
    ),
    Fault(
        "an application's Xid that repeats",
        lambda image: with_kernel_line(
            with_kernel_line(image, XID.format(bus="53", text="31, pid=7, name=python3, MMU Fault"), at_s=70_000),
            XID.format(bus="53", text="31, pid=9, name=python3, MMU Fault"),
            at_s=80_000,
        ),
        {"gpu.no_xid": CONCERN},
        "Xid 31",
    ),
    Fault(
        "a kernel log that may not be read",
        lambda image: without_file(
            with_tool(
                with_tool(
                    image,
                    "dmesg",
                    "#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2\nexit 1\n",
                ),
                "journalctl",
                "#!/bin/sh\nexit 1\n",
            ),
            "/dev/kmsg",
        ),
        {"gpu.no_xid": INCOMPLETE, "gpu.no_sxid": INCOMPLETE, "host.d_state": INCOMPLETE},
        "kernel_log",
    ),
    Fault(
        "a fatal SXid",
        lambda image: with_kernel_line(
            image, "nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"
        ),
        {"gpu.no_sxid": FAIL},
        "SXid 20034",
    ),
    Fault(
        "a hung task in the kernel log",
        lambda image: with_kernel_line(image, "INFO: task python3:4242 blocked for more than 122 seconds."),
        {"host.d_state": CONCERN},
        "python3 (pid 4242)",
    ),
)
