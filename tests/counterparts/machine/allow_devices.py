"""`python3 allow_devices.py CGROUP` lets a container open every device, as NVIDIA's hook lets it open GPUs.

The programs that deny devices are taken off the cgroup. systemd is not told, and attaches its own again at a reload.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

SYSCALL, BYTES = 321, 120  # of bpf on x86-64, and of its argument
PROG_DETACH, PROG_GET_FD_BY_ID, PROG_QUERY, CGROUP_DEVICE = 9, 13, 16, 6  # linux/bpf.h
MAX_PROGRAMS = 64  # of one kind in a cgroup
LIBC = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, *fields: int, form: str) -> tuple[int, bytes]:
    """The result of the system call, and its argument afterwards. Raises OSError."""
    argument = ctypes.create_string_buffer(struct.pack(form, *fields), BYTES)
    result = LIBC.syscall(SYSCALL, command, argument, BYTES)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, argument.raw


def main(path: str) -> None:
    """Detach every program that the cgroup has for devices."""
    cgroup = os.open(path, os.O_RDONLY)
    ids = (ctypes.c_uint32 * MAX_PROGRAMS)()
    _, answer = bpf(PROG_QUERY, cgroup, CGROUP_DEVICE, 0, 0, ctypes.addressof(ids), MAX_PROGRAMS, form="=IIIIQI")
    (count,) = struct.unpack_from("=I", answer, 24)
    for number in ids[:count]:
        program, _ = bpf(PROG_GET_FD_BY_ID, number, form="=I")
        bpf(PROG_DETACH, cgroup, program, CGROUP_DEVICE, form="=III")


if __name__ == "__main__":
    main(sys.argv[1])
