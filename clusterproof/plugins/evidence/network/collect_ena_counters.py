"""ENA's counters of packets exceeding the allowances of an EC2 instance, read twice: ethtool's ioctl."""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct

from clusterproof.plugins.agent.reading import Absent, Denied, Node, error
from clusterproof.plugins.evidence.network.collect_efa_counters import twice

FOLDER = "/sys/class/net"
DRIVER = "ena"
ALLOWANCES = (
    "bw_in_allowance_exceeded",
    "bw_out_allowance_exceeded",
    "pps_allowance_exceeded",
    "conntrack_allowance_exceeded",
    "linklocal_allowance_exceeded",
)
SIOCETHTOOL = 0x8946
SET_INFO, STRINGS, STATISTICS = 0x37, 0x1B, 0x1D  # linux/ethtool.h: ETHTOOL_GSSET_INFO, _GSTRINGS, _GSTATS
SET_OF_STATISTICS = 1  # ETH_SS_STATS
NAME_BYTES, VALUE_BYTES = 32, 8
MAX_STATISTICS = 16_384  # a driver has some dozens of counters for each queue
IFREQ = struct.Struct("16sP16x")


def read(node: Node) -> object:
    """Each ENA interface's counters of these, read twice, and the seconds between the reads. Raises Absent, Denied."""
    names = [name for name in node.names(FOLDER) if node.linked(f"{FOLDER}/{name}/device/driver") == DRIVER]
    if not names:
        raise Absent(f"no interface of ENA in {FOLDER}")
    if node.root and node.linked("/proc/1/ns/net") != Node().linked("/proc/self/ns/net"):
        raise Denied("this process is not in the node's network namespace")
    return twice(node, "interfaces", names, lambda name: _allowances(node, name))


def statistics(interface: str) -> dict[str, int]:
    """The counters of an interface's driver, as `ethtool -S` shows them. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = _ask(asking, interface, struct.pack("=IIQI", SET_INFO, 0, 1 << SET_OF_STATISTICS, 0))
        _, _, sets, count = struct.unpack_from("=IIQI", answer)
        if not sets or not count:
            return {}
        if count > MAX_STATISTICS:
            raise OSError(errno.E2BIG, "", interface)
        names = _ask(asking, interface, struct.pack("=III", STRINGS, SET_OF_STATISTICS, count), NAME_BYTES)
        values = _ask(asking, interface, struct.pack("=II", STATISTICS, count), VALUE_BYTES)
    if struct.unpack_from("=I", names, 8) != (count,) or struct.unpack_from("=I", values, 4) != (count,):
        raise OSError(errno.EAGAIN, "", interface)  # the number of queues changed between the calls
    parts = (struct.unpack_from(f"={NAME_BYTES}s", names, 12 + NAME_BYTES * index)[0] for index in range(count))
    return dict(zip((_text(word) for word in parts), struct.unpack_from(f"={count}Q", values, 8)))


def _ask(asking: socket.socket, interface: str, question: bytes, each_bytes: int = 0) -> bytes:
    """The kernel's answer, which it writes over the question; a buffer larger than the answer does no harm."""
    buffer = array.array("B", question + bytes(each_bytes * MAX_STATISTICS))
    fcntl.ioctl(asking, SIOCETHTOOL, IFREQ.pack(interface.encode()[:15], buffer.buffer_info()[0]))
    return buffer.tobytes()


def _text(word: bytes) -> str:
    return word.partition(b"\0")[0].decode("ascii", "replace")


def _allowances(node: Node, name: str) -> dict[str, object]:
    """The allowance counters that this driver has; an error in place of each if they cannot be read."""
    node.at(f"ethtool -S {name}")
    try:
        counters = statistics(name)
    except OSError as problem:
        return dict.fromkeys(ALLOWANCES, error(OSError(problem.errno, "", f"ethtool -S {name}")))
    return {counter: counters[counter] for counter in ALLOWANCES if counter in counters}
