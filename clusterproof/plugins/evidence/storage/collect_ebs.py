"""How long EBS volumes were asked for more than their limits: NVMe's log page 0xD0, which only root may read."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import struct

from clusterproof.plugins.agent.reading import Absent, Denied, Node, error

CONTROLLERS = "/sys/class/nvme"
MODEL = "Amazon Elastic Block Store"
EXCEEDED_US = ("volume_iops_us", "volume_throughput_us", "instance_iops_us", "instance_throughput_us")
ADMIN_COMMAND = 0xC0484E41  # linux/nvme_ioctl.h, NVME_IOCTL_ADMIN_CMD
COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")  # struct nvme_admin_cmd
GET_LOG_PAGE = 0x02
STATISTICS = 0xD0  # Amazon's own page, as CloudWatch's agent and nvme-cli (`nvme amzn stats`) read it
PAGE_BYTES = 4096
PAGE = struct.Struct("<I4x11Q")  # magic; operations, bytes and µs read and written; µs exceeded; queue length
MAGIC = 0x3C23B510
FIRST_EXCEEDED = 7  # index in the values of PAGE


def read(node: Node) -> object:
    """For each volume, the µs since it was attached during which a limit held it back. Raises Absent, Denied."""
    names = [name for name in node.names(CONTROLLERS) if node.text(f"{CONTROLLERS}/{name}/model", absent="") == MODEL]
    if not names:
        raise Absent(f"no volume of EBS in {CONTROLLERS}")
    return node.each("volumes", names, lambda name: _volume(node, name))


def _volume(node: Node, name: str) -> dict[str, object]:
    """The volume, with an error in place of each value that it does not report. Raises Denied."""
    path = f"/dev/{name}"
    node.at(f"log page {STATISTICS:#x} of {path}")
    known = {"name": name, "serial": node.text(f"{CONTROLLERS}/{name}/serial", absent="")}
    try:
        page = PAGE.unpack_from(log_page(node.path(path), STATISTICS))
        if page[0] != MAGIC:
            raise OSError(errno.EINVAL, "", path)
    except PermissionError as problem:
        raise Denied(f"{path}: {problem.strerror}") from None
    except OSError as problem:
        return {**known, **dict.fromkeys(EXCEEDED_US, error(OSError(problem.errno, "", path)))}
    return {**known, **dict(zip(EXCEEDED_US, page[FIRST_EXCEEDED:]))}


def log_page(path: str, page: int) -> bytes:
    """A log page of a controller's first namespace. Raises OSError.

    There is no timeout here: if a command times out, Linux resets the controller.
    """
    data = array.array("B", bytes(PAGE_BYTES))
    dword = page | (PAGE_BYTES // 4 - 1) << 16
    command = bytearray(
        COMMAND.pack(GET_LOG_PAGE, 0, 0, 1, 0, 0, 0, data.buffer_info()[0], 0, PAGE_BYTES, dword, 0, 0, 0, 0, 0, 0, 0)
    )
    device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if fcntl.ioctl(device, ADMIN_COMMAND, command):  # an NVMe status: this controller has no such page
            raise OSError(errno.ENOTSUP, "", path)
    finally:
        os.close(device)
    return data.tobytes()
