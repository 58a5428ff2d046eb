"""RoCE settings of network ports: GIDs, ECN, traffic class, PFC, and the priority of each DSCP.

From /sys/class/infiniband and /sys/class/net; PFC and DSCP from the kernel by netlink, as mlnx_qos and dcb do.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Node, error

FOLDER = "/sys/class/infiniband"
MAX_GIDS = 16  # entries per port; NCCL and perftest choose from the first ones
PRIORITIES = range(8)
DSCPS = range(64)
RTM_GETDCB, NLM_F_REQUEST, NLMSG_ERROR, IEEE_GET = 78, 1, 2, 21  # of linux/netlink.h, rtnetlink.h and dcbnl.h
IFNAME, IEEE, PFC, APPS, BY_DSCP = 1, 13, 2, 3, 5  # its attributes; the selector of the APP entries that are by DSCP
ANSWER_S, MAX_ANSWER = 1.0, 32 * 1024
WITHOUT = (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EOPNOTSUPP)


def read(node: Node) -> object:
    """Every hardware port whose link layer is Ethernet."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for name in node.names(FOLDER):
        vendor, device = (str(node.text(f"{FOLDER}/{name}/device/{file}", absent="")) for file in ("vendor", "device"))
        for port in node.names(f"{FOLDER}/{name}/ports") if vendor else ():
            if node.text(f"{FOLDER}/{name}/ports/{port}/link_layer", absent="") == "Ethernet":
                rows[name, port] = {"device": name, "model": f"{vendor[2:]}:{device[2:]}", "port": int(port)}
    return node.each("ports", rows, lambda pair: {**rows[pair], **_port(node, *pair)})


def _port(node: Node, name: str, port: str) -> dict[str, object]:
    node.at(f"{name} port {port}")
    at = f"{FOLDER}/{name}/ports/{port}"
    interface = str(node.text(f"{at}/gid_attrs/ndevs/0", absent=""))
    ecn = f"/sys/class/net/{interface}/ecn"
    return {
        "state": node.text(f"{at}/state", absent=""),
        "rate": node.text(f"{at}/rate", absent=""),
        "gids": [gid for index in range(MAX_GIDS) if (gid := _gid(node, at, index))],
        "notifies": _switches(node, f"{ecn}/roce_np/enable"),
        "reacts": _switches(node, f"{ecn}/roce_rp/enable"),
        "traffic_class": node.text(f"{FOLDER}/{name}/tc/{port}/traffic_class", absent=""),
        **read_priorities(node, interface),
    }


def _gid(node: Node, at: str, index: int) -> dict[str, object] | None:
    """An entry of the GID table that is in use: its index, its type, and the kind of its address."""
    address = node.text(f"{at}/gids/{index}", absent="")
    if not isinstance(address, str) or not address.replace(":", "").strip("0"):
        return None
    mapped = address.startswith("0000:0000:0000:0000:0000:ffff:")
    kind = "ipv4" if mapped else "link" if address.startswith("fe80") else "ipv6"
    return {"index": index, "type": node.text(f"{at}/gid_attrs/types/{index}", absent=""), "kind": kind}


def _switches(node: Node, folder: str) -> str:
    """One digit for each priority, 1 if congestion control is on; empty if the driver has no such files."""
    bits = [str(node.text(f"{folder}/{priority}", absent="")) for priority in PRIORITIES]
    return "".join(bits) if all(word in ("0", "1") for word in bits) else ""


def read_priorities(node: Node, interface: str) -> dict[str, object]:
    """Whether PFC is on, one digit for each priority; and the priority of each DSCP. Empty if the driver has none.

    The kernel is asked in the node's own network namespace, in which a pod with hostNetwork is too.
    """
    of_node = node.linked("/proc/1/ns/net") if node.root else ""
    where = f"priorities of {interface}"
    try:
        if interface and of_node and of_node != Node().linked("/proc/self/ns/net"):
            where += ", in another network namespace"
            raise OSError(errno.EPERM, "")
        return priorities(_ieee_answer(interface) if interface and (of_node or not node.root) else b"")
    except OSError as problem:
        if problem.errno in WITHOUT:
            return priorities(b"")
        why = error(OSError(problem.errno or errno.EIO, "", where))
        return {"pfc": why, "dscp": why}


def _ieee_answer(interface: str) -> bytes:
    """The attributes in the kernel's answer. Raises OSError."""
    name = interface.encode()[:15] + b"\0"
    attribute = struct.pack("=HH", 4 + len(name), IFNAME) + name + bytes(-len(name) % 4)
    head = struct.pack("=IHHII", 20 + len(attribute), RTM_GETDCB, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(ANSWER_S)
        kernel.send(head + struct.pack("=BBH", 0, IEEE_GET, 0) + attribute)
        answer, (sender, _) = kernel.recvfrom(MAX_ANSWER)
    if sender or len(answer) < 20:  # not sent by the kernel
        raise OSError(errno.EIO, "")
    length, kind = struct.unpack_from("=IH", answer)
    if kind == NLMSG_ERROR:
        raise OSError(-struct.unpack_from("=i", answer, 16)[0], "")
    return answer[20:length]


def priorities(data: bytes) -> dict[str, object]:
    """PFC and the priorities by DSCP, decoded from these attributes."""
    ieee = dict(_attributes(dict(_attributes(data)).get(IEEE, b"")))
    pfc, by_dscp = ieee.get(PFC, b""), {}
    for _, entry in _attributes(ieee.get(APPS, b"")):
        selector, priority, dscp = struct.unpack_from("=BBH", entry) if len(entry) >= 4 else (0, 0, 0)
        if selector == BY_DSCP and dscp in DSCPS and priority in PRIORITIES:
            by_dscp[dscp] = str(priority)
    return {
        "pfc": "".join(str(pfc[1] >> priority & 1) for priority in PRIORITIES) if len(pfc) > 1 else "",
        "dscp": "".join(by_dscp.get(dscp, "-") for dscp in DSCPS) if by_dscp else "",
    }


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += -(-length // 4) * 4
