"""A node's names and who assigns them: nameservers are queried, real ones too, and silence times out."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.group import Group
from clusterproof.plugins.evidence.network import collect_naming as naming
from clusterproof.plugins.evidence.node import Node as NodeOfCluster
from tests.builders import evaluated
from tests.builders.probed import collect_under
from tests.builders.recordings import node

REAL, SILENT = "127.0.71.55", "127.0.71.56"
DNSMASQ = shutil.which("dnsmasq", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_dnsmasq = pytest.mark.skipif(
    os.geteuid() != 0 or not DNSMASQ, reason="needs root, for port 53, and dnsmasq: apt-get install dnsmasq-base"
)


@pytest.fixture
def dnsmasq() -> Iterator[str]:
    """A real nameserver that knows no names."""
    options = ["--no-daemon", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--bind-interfaces"]
    assert DNSMASQ
    with subprocess.Popen([DNSMASQ, *options, f"--listen-address={REAL}"], stderr=subprocess.DEVNULL) as server:
        try:
            while not naming._with_answers(Node(collector_s=1.0), [REAL], "gpu001")[0]["answers"]:
                assert server.poll() is None
                time.sleep(0.05)
            yield REAL
        finally:
            server.terminate()


@needs_dnsmasq
def test_a_real_nameserver_answers_whatever_it_knows(dnsmasq: str) -> None:
    for name in ("gpu001", "gpu001.example.org", "", "x" * 300, "\N{GREEK SMALL LETTER PI}"):
        assert naming._with_answers(Node(), [dnsmasq], name) == [{"address": dnsmasq, "answers": True}]


def test_silence_and_what_is_no_address_are_no_answer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind((SILENT, 0))
        servers = [SILENT, "not-an-address.example", "10.0.0.999"]
        answers = naming._with_answers(Node(collector_s=0.2), servers, "gpu001")
    assert answers == [{"address": server, "answers": False} for server in servers]


@pytest.mark.parametrize(
    ("lines", "data"),
    [
        ("127.0.0.1 localhost\n", []),
        ("127.0.1.1 gpu001.example.org gpu001\n", [("127.0.1.1", True)]),
        ("192.0.2.7 gpu001 # of the image\n::1 gpu001\n", [("192.0.2.7", False), ("::1", True)]),
        ("192.0.2.7 GPU001\n", [("192.0.2.7", False)]),  # names are the same in either case
        ("192.0.2.7 gpu0012 gpu001.example.com\n#192.0.2.8 gpu001\n", []),
        ("localhost gpu001\n10.0.0 gpu001\n\x00 gpu001\ngpu001\n", []),
    ],
)
def test_the_nodes_own_name_in_etc_hosts(tmp_path: Path, lines: str, data: list[tuple[str, bool]]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text(lines)
    entries = naming._hosts(Node(str(tmp_path)), "gpu001")
    assert entries == [{"address": address, "is_own": is_own} for address, is_own in data]


def test_the_loopback_address_is_the_nodes_own_where_ipv6_is_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_address(_socket: socket.socket, _address: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("::1 gpu001.example.org gpu001\n2001:db8::7 gpu001\n")
    monkeypatch.setattr(socket.socket, "bind", no_address)
    entries = naming._hosts(Node(str(tmp_path)), "gpu001")
    assert entries == [{"address": "::1", "is_own": True}, {"address": "2001:db8::7", "is_own": False}]


@pytest.mark.parametrize(
    ("files", "servers"),
    [
        ({}, []),
        ({"etc/resolv.conf": "search x\n# nameserver 10.0.0.1\nnameserver 10.0.0.2 # second\n"}, ["10.0.0.2"]),
        ({"etc/resolv.conf": "nameserver\n" + "nameserver 10.0.0.2\n" * 5}, ["10.0.0.2"] * 3),
        (
            {
                "etc/resolv.conf": "nameserver 127.0.0.53\n",
                "run/systemd/resolve/resolv.conf": "nameserver 10.0.0.2\nnameserver 10.0.0.3\n",
            },
            ["127.0.0.53", "10.0.0.2", "10.0.0.3"],
        ),
    ],
)
def test_whom_a_node_asks_for_names(tmp_path: Path, files: dict[str, str], servers: list[str]) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert naming._nameservers(Node(str(tmp_path))) == servers


def test_an_address_that_another_host_was_found_to_have_is_reported(tmp_path: Path) -> None:
    (tmp_path / "proc/1/net").mkdir(parents=True)
    (tmp_path / "proc/1/net/if_inet6").write_text(
        "fe800000000000000c4b1cfffe2d3e4f 02 40 20 80     eth0\n20010db8000000000000000000000007 02 40 00 88     eth0\n"
    )
    assert naming._duplicates(Node(str(tmp_path))) == ["2001:db8::7 on eth0"]


def result_of(addresses: list[str], duplicates: list[str], others: list[list[str]], driver: str = "ena") -> Result:
    """The result on the first of some nodes, by each node's IPv4 addresses."""
    group: Group[NodeOfCluster] = Group()
    for number, of_node in enumerate([addresses, *others]):
        entries = [{"name": f"eth{n}", "driver": driver, "mac": "", "ipv4": ipv4} for n, ipv4 in enumerate(of_node)]
        report = {"addresses": entries, "duplicates": duplicates, "hosts": [], "nameservers": [], "hostname": "x"}
        name = f"gpu{number:03d}"
        evidence = NodeEvidence(name, {"naming": Collected(Status.READ, report)})
        group.nodes.append(NodeOfCluster(Target(name), evidence, group=group))
    return evaluate(node_checks()["network.address_unique"], group.nodes[0])


@pytest.mark.parametrize(
    ("addresses", "others", "driver", "verdict"),
    [
        (["10.0.0.1"], [["10.0.0.2"], ["10.0.0.3"], ["10.0.0.4"]], "ena", Verdict.PASS),
        (["10.0.0.1"], [["10.0.0.1"], ["10.0.0.3"], ["10.0.0.4"]], "ena", Verdict.CONCERN),
        (["10.0.0.1"], [["10.0.0.1"]], "ena", Verdict.CONCERN),
        (["10.0.0.1", "192.168.0.1"], [[f"10.0.0.{n}", "192.168.0.1"] for n in (2, 3, 4)], "mlx5_core", Verdict.PASS),
        (["169.254.0.17"], [["169.254.0.17"]], "mlx5_core", Verdict.NOT_APPLICABLE),
        (["10.9.9.1"], [["10.9.9.1"]], "cdc_ether", Verdict.NOT_APPLICABLE),
        ([""], [["10.0.0.1"]], "ena", Verdict.NOT_APPLICABLE),
    ],
)
def test_an_address_belongs_to_one_node(
    addresses: list[str], others: list[list[str]], driver: str, verdict: Verdict
) -> None:
    assert result_of(addresses, [], others, driver).verdict is verdict


def test_an_address_that_the_kernel_calls_duplicate_is_a_concern_without_any_other_node() -> None:
    assert result_of(["10.0.0.1"], ["2001:db8::7 on eth0"], []).verdict is Verdict.CONCERN


@pytest.mark.long
def test_another_network_namespace_is_reported_with_what_helps(tmp_path: Path) -> None:
    folder = tmp_path / "proc/1/ns"
    folder.mkdir(parents=True)
    (folder / "net").symlink_to("net:[1]")
    answer = collect_under(tmp_path, "naming")
    assert answer.status is Status.DENIED
    assert answer.detail == "this process is in another network namespace; expected the node's own (hostNetwork: true)"


@pytest.mark.long
def test_a_network_namespace_that_may_not_be_looked_at_is_not_called_another(tmp_path: Path) -> None:
    answer = collect_under(tmp_path, "naming")
    assert (answer.status, answer.detail) == (Status.DENIED, "/proc/1/ns/net may not be looked at")


@pytest.mark.parametrize(
    ("own", "says", "words"),
    [
        (
            [],
            Verdict.CONCERN,
            "is also that of gpu002 and 2 other nodes, with the same boot ID, so the same machine",
        ),
        ([1, 2, 3, 4], Verdict.PASS, ""),  # what they share is a network inside each machine
    ],
)
def test_one_machine_under_all_names_of_a_group_is_a_concern(own: list[int], says: Verdict, words: str) -> None:
    def evidence(name: str, *numbers: int, boot_id: str = "one") -> NodeEvidence:
        addresses = [
            {"name": f"e{n}", "driver": "ena", "mac": f"0a:00:00:00:00:0{n}", "ipv4": f"10.0.0.{n}"}
            for n in (9, *numbers)
        ]
        naming = {"hostname": "gpu001", "hosts": [], "nameservers": [], "addresses": addresses, "duplicates": []}
        return node(name, naming=naming, boot={"boot_id": boot_id})

    nodes = [evidence(f"gpu00{n}", *own[n - 1 : n]) for n in (1, 2, 3, 4)]
    another = evidence("gpu009", *(own and [5]), boot_id="other")
    for others in ([], [another]):  # which claims their addresses
        result = evaluated.result_of("network.address_unique", *nodes, *others)
        assert (result.verdict, words in result.message) == (says, True), result.message
