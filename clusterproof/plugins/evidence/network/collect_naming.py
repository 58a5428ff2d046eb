"""The node's name and addresses, and whether its name servers answer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import time

from clusterproof.plugins.agent.reading import Denied, Node, error

HOSTS, RESOLV = "/etc/hosts", "/etc/resolv.conf"
BEHIND_STUB = "/run/systemd/resolve/resolv.conf"  # the servers that systemd-resolved asks
STUB = "127.0.0.53"
MAX_SERVERS = 3  # glibc asks at most this many (resolv.h, MAXNS)
TRIES = 2
SHARE = 0.2  # part of the collector's time in which all servers together may answer one try
DNS = 53
ADDRESS, NAMESERVERS = 1, 2  # record types to ask for: A of the node's name, NS of the root
INTERFACES = "/sys/class/net"
MAX_INTERFACES = 128
MAX_HOSTS = 32
LOOPBACK = "::1"
SIOCGIFADDR = 0x8915
DUPLICATE = 0x08  # linux/if_addr.h, IFA_F_DADFAILED
USED_UP = (errno.EAGAIN, errno.EADDRINUSE, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # by any user


def read(node: Node) -> object:
    """The node's own entries in /etc/hosts, its addresses, and whether each name server answers."""
    _require_network(node)
    hostname = str(node.text("/proc/sys/kernel/hostname"))
    return {
        "hostname": hostname,
        "hosts": _hosts(node, hostname),
        "nameservers": _with_answers(node, _nameservers(node), hostname),
        "addresses": _addresses(node),
        "duplicates": _duplicates(node),
    }


def _require_network(node: Node) -> None:
    """Raise Denied if this process is in another network namespace than the node."""
    own = node.linked("/proc/1/ns/net") if node.root else ""
    if node.root and not own:
        raise Denied("/proc/1/ns/net may not be looked at")
    if node.root and own != Node().linked("/proc/self/ns/net"):
        raise Denied("this process is in another network namespace; expected the node's own (hostNetwork: true)")


def _hosts(node: Node, hostname: str) -> object:
    """The addresses that /etc/hosts gives the node's own name, and whether each belongs to the node."""
    text = node.text(HOSTS, absent="")
    if isinstance(text, dict):
        return text
    wanted = {hostname.lower(), hostname.lower().partition(".")[0]}
    rows = [line.partition("#")[0].lower().split() for line in text.splitlines()]
    named = [row[0] for row in rows if wanted.intersection(row[1:])]
    try:
        owned = [(address, _is_own(address)) for address in named]
    except OSError as problem:
        return error(problem)
    return [{"address": address, "is_own": is_own} for address, is_own in owned if is_own is not None][:MAX_HOSTS]


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_own(address: str) -> bool | None:
    """Whether the address belongs to this node; None if it is not a valid address. Raises OSError if unknown."""
    try:
        socket.inet_pton(_family(address), address)
        with socket.socket(_family(address), socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except ValueError:
        return None
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE or address == LOOPBACK:
            return True  # all of its ports are taken, or IPv6 is disabled
        if problem.errno in USED_UP:
            raise
        return False if problem.errno else None  # inet_pton raises an OSError without errno
    return True


def _nameservers(node: Node) -> list[str]:
    """The servers in resolv.conf, and those that systemd-resolved forwards to."""
    named = _named_in(node, RESOLV)
    return named + (_named_in(node, BEHIND_STUB) if STUB in named else [])


def _named_in(node: Node, path: str) -> list[str]:
    text = node.text(path, absent="")
    rows = [line.split() for line in text.splitlines()] if isinstance(text, str) else []
    return [row[1] for row in rows if row[0:1] == ["nameserver"] and len(row) > 1][:MAX_SERVERS]


def _with_answers(node: Node, servers: list[str], hostname: str) -> list[dict[str, object]]:
    """Each server, and whether it answered a question about the node's own name or about the root."""
    open_ones: dict[socket.socket, str] = {}
    answers: dict[str, object] = dict.fromkeys(servers, False)
    token = os.urandom(2)
    for server in answers:
        try:
            *how, _, at = socket.getaddrinfo(server, DNS, 0, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0]
            asking = socket.socket(*how)
            asking.setblocking(False)
            asking.connect(at)
        except (OSError, ValueError) as problem:  # not an address, or no route to it
            if isinstance(problem, OSError) and problem.errno in USED_UP:
                answers[server] = error(problem)
            continue
        open_ones[asking] = server
    questions = [_question(token, hostname, ADDRESS), _question(token, "", NAMESERVERS)]
    for _ in range(TRIES):
        until = time.monotonic() + SHARE * node.collector_s
        for asking in open_ones:
            for question in questions:
                _send(asking, question)
        while open_ones and time.monotonic() < until:
            node.at("the nameservers " + " ".join(open_ones.values()))
            for asking in select.select(list(open_ones), [], [], max(0.0, until - time.monotonic()))[0]:
                if _has_answer(asking, token):
                    answers[open_ones.pop(asking)] = True
    return [{"address": server, "answers": answer} for server, answer in answers.items()]


def _question(token: bytes, name: str, kind: int) -> bytes:
    labels = [label.encode("ascii", "ignore")[:63] for label in name.split(".") if label]
    wire = b"".join(bytes([len(label)]) + label for label in labels if label)
    return token + struct.pack("!HHHHH", 0x0100, 1, 0, 0, 0) + wire + b"\0" + struct.pack("!HH", kind, 1)


def _send(asking: socket.socket, question: bytes) -> None:
    with contextlib.suppress(OSError):  # refused by an earlier packet; the server may answer the next
        asking.send(question)


def _has_answer(asking: socket.socket, token: bytes) -> bool:
    try:
        return asking.recv(512)[:2] == token
    except OSError:
        return False


def _addresses(node: Node) -> list[dict[str, object]]:
    """The driver, MAC and IPv4 address of each interface that has a device of its own or is a bond."""
    rows: list[dict[str, object]] = []
    for name in node.names(INTERFACES):
        at = f"{INTERFACES}/{name}"
        if (node.exists(f"{at}/device") or node.exists(f"{at}/bonding")) and len(rows) < MAX_INTERFACES:
            driver, mac = node.linked(f"{at}/device/driver"), node.text(f"{at}/address", absent="")
            rows.append({"name": name, "driver": driver, "mac": mac, "ipv4": _ipv4(name)})
    return rows


def _ipv4(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            reply = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(reply[20:24])


def _duplicates(node: Node) -> list[str]:
    """The IPv6 addresses that another host was found to use too."""
    text = node.text("/proc/1/net/if_inet6" if node.root else "/proc/self/net/if_inet6", absent="")
    rows = [line.split() for line in text.splitlines()] if isinstance(text, str) else []
    twice = [row for row in rows if len(row) == 6 and int(row[4], 16) & DUPLICATE]
    return [f"{socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))} on {row[5]}" for row in twice[:MAX_HOSTS]]
