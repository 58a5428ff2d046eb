"""Network interfaces and EC2's instance metadata service."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed import efa, imds
from tests.testbed.image import NodeImage
from tests.testbed.node import with_file

PRIMARY = "/sys/class/net/ens32"
UNANSWERED = {"network.imds_v2": INCOMPLETE, "network.scheduled_events": INCOMPLETE}


def with_tokens(image: NodeImage, how: str) -> NodeImage:
    """Set how the metadata service answers requests without a token."""
    return with_file(image, imds.TOKENS, f"{how}\n")


def with_event(image: NodeImage, code: str, state: str = "active") -> NodeImage:
    """AWS has scheduled this event, in the words of EC2's guide."""
    event = {
        "NotBefore": "21 Jan 2026 09:00:43 GMT",
        "Code": code,
        "Description": "scheduled reboot",
        "EventId": "instance-event-0d59937288b749b32",
        "NotAfter": "21 Jan 2026 09:17:23 GMT",
        "State": state,
    }
    return with_file(image, imds.EVENTS, json.dumps([event]))


ANSWERING, SILENT = "127.0.71.53", "127.0.71.54"
NAMESERVER = f"""exec python3 -c '
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("{ANSWERING}", 53))
print("ready", flush=True)
while True:
    question, asker = server.recvfrom(512)
    server.sendto(question[:2] + bytes([0x81, 0x85]) + question[4:], asker)
'"""  # it refuses every query, which is an answer


def with_nameservers(image: NodeImage, *servers: str) -> NodeImage:
    """The node's name servers are these."""
    return with_file(image, "/etc/resolv.conf", "".join(f"nameserver {server}\n" for server in servers))


def with_hosts(image: NodeImage, *lines: str) -> NodeImage:
    """Its /etc/hosts has these lines too."""
    return with_file(image, "/etc/hosts", "".join(f"{line}\n" for line in ("127.0.0.1 localhost", *lines)))


FAULTS = (
    Fault(
        "no nameserver that answers",
        lambda image: with_nameservers(image, SILENT),
        {"network.nameservers": FAIL},
        f"no answer from {SILENT}; expected at least one from a nameserver",
    ),
    Fault(
        "a nameserver that does not answer beside one that does",
        lambda image: with_nameservers(image, SILENT, ANSWERING),
        {"network.nameservers": CONCERN},
        f"no answer from {SILENT}; expected one from each nameserver",
        beside=NAMESERVER,
    ),
    Fault(
        "a nameserver behind systemd's own resolver that does not answer",
        lambda image: with_file(
            with_nameservers(image, "127.0.0.53"), "/run/systemd/resolve/resolv.conf", f"nameserver {SILENT}\n"
        ),
        {"network.nameservers": FAIL},
        SILENT,
    ),
    Fault(
        "a host name with another node's address",
        lambda image: with_hosts(image, "192.0.2.7 gpu001.example.org gpu001 # as it was in the image"),
        {"network.own_name": FAIL},
        "/etc/hosts gives gpu001 the address 192.0.2.7; expected an address of this node",
    ),
    Fault(
        "a host name that also has another node's address",
        lambda image: with_hosts(image, "127.0.1.1 gpu001", "192.0.2.7 gpu001"),
        {"network.own_name": CONCERN},
        "192.0.2.7 in addition to its own",
    ),
    Fault(
        "a MAC address that another node has",
        lambda image: with_file(image, f"{PRIMARY}/address", "0a:53:00:00:00:01\n"),
        {"network.address_unique": CONCERN},
        "0a:53:00:00:00:01 is also that of gpu002; expected",
    ),
    Fault(
        "an interface without a link",
        lambda image: with_file(with_file(image, f"{PRIMARY}/carrier", "0\n"), f"{PRIMARY}/operstate", "down\n"),
        {"network.interfaces_up": CONCERN, "network.mtu": NA},
        "switched on without a link: ens32",
    ),
    Fault(
        "no interface that is switched on",
        lambda image: with_file(image, f"{PRIMARY}/flags", f"{efa.OFF}\n"),
        {"network.interfaces_up": CONCERN, "network.mtu": NA},
        "every network interface is switched off",
    ),
    Fault(
        "an interface that reports no link state",
        lambda image: with_file(image, f"{PRIMARY}/carrier", "maybe\n"),
        {"network.interfaces_up": INCOMPLETE, "network.mtu": INCOMPLETE},
        "carrier could not be read",
    ),
    Fault(
        "an interface that takes no jumbo frames",
        lambda image: with_file(image, f"{PRIMARY}/mtu", "1500\n"),
        {"network.mtu": CONCERN},
        "the MTU of ens32 is 1500; expected 9001",
    ),
    Fault(
        "a metadata service that asks for no token",
        lambda image: with_tokens(image, "optional"),
        {"network.imds_v2": CONCERN},
        "answers without a token; expected HTTP 401",
    ),
    Fault(
        "a metadata service that gives no token",
        lambda image: with_tokens(image, "refused"),
        {"network.imds_v2": CONCERN, "network.scheduled_events": INCOMPLETE},
        "refuses a token with HTTP 403",
    ),
    Fault(
        "a metadata service that never answers",
        lambda image: with_tokens(image, "silent"),
        UNANSWERED,
        "ETIMEDOUT",
    ),
    Fault(
        "a metadata service that is not there",
        lambda image: replace(
            image, daemons={name: limit for name, limit in image.daemons.items() if name != imds.DAEMON}
        ),
        UNANSWERED,
        "ECONNREFUSED",
    ),
    Fault(
        "a reboot that AWS has scheduled",
        lambda image: with_event(image, "system-reboot"),
        {"network.scheduled_events": CONCERN},
        "scheduled: system-reboot from 21 Jan 2026 09:00:43 GMT",
    ),
    Fault(
        "a list of scheduled events that is not a list",
        lambda image: with_file(image, imds.EVENTS, "<html>"),
        {"network.scheduled_events": INCOMPLETE},
        "imds: events could not be read",
    ),
)
