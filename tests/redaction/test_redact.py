"""Redaction: no name survives, and each name always gets the same word."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached, to_json
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.line import form_of
from clusterproof.plugins.redaction.redact import Redaction
from tests.builders.recordings import boot, gpu, node, nvml, unreached
from tests.builders.runs import saying
from tests.builders.samples import Sample, of_topic
from tests.evidence.kernel_log.known_lines import KNOWN_LINES, KnownLine

UUID = "6f2c1d7e-8a34-4c1b-9e55-0d9f6c2b7a10"


def redacted(names: list[str], *nodes: NodeEvidence, **addresses: str) -> list[dict[str, Any]]:
    """These nodes in redacted form, from a cluster with these names."""
    targets = tuple(Target(name, address=addresses.get(name, "")) for name in names)
    written: list[NodeEvidence] = []
    with Redaction(Cluster("prod", "ssh", targets)).rewriting(written.append) as learn:
        for evidence in nodes:
            learn(evidence)
    return [to_json(evidence) for evidence in written]


def text_of(line: str, *names: str) -> str:
    """A redacted line of the kernel log, in a cluster with these nodes."""
    (record,) = redacted([*names, "gpu999"], node("gpu999", kernel_log={"lines": [[1.0, line]]}))
    return str(record["collectors"]["kernel_log"]["value"]["lines"][0][1])


# What stays


@pytest.mark.parametrize(
    "text",
    [
        "Fabric Manager version is : 580.126.09",
        "EFA installer 2.3.1.0, libfabric 1.22.0amzn1.0, driver version 2.26.5.0",
        "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
        "nvidia 00000000:53:00.0: enabling device",
        "pcieport 0000:00:1b.0: AER: Corrected error received: 0000:53:00.0",
        "infiniband rdmap79s0: efa_device registered on 127.0.0.1 and ::1",
        "std::string at 12:30:45 of 2026-11-20 in 0xffff8881029c9000",
        "mlx5_core 0000:4f:00.0 ens1f0np0: Link up",
        "00000000-0000-0000-0000-000000000000",
        "p5.48xlarge trn1.32xlarge Linux 6.8.0-1021-aws",
    ],
)
def test_what_names_nothing_stays(text: str) -> None:
    assert text_of(text) == text


@pytest.mark.parametrize("name", ["a", "1", "n1", "gpu", "node", "nvidia", "0000", "kernel", "53"])
def test_a_name_that_is_also_a_common_word_does_not_wreck_texts(name: str) -> None:
    text = "GPU 1: a node is at 0000:53:00.0; nvidia: kernel gpu"
    assert text_of(text, name) == text


@pytest.mark.parametrize("name", ["a", "1", "n1", "gpu", "node"])
@pytest.mark.parametrize(
    "text", ["host {} is gone", "{}:/export", "//{}/share", "root@{}", "{} kernel: it is late", "{}:22 refuses"]
)
def test_such_a_name_is_replaced_where_only_a_host_can_stand(name: str, text: str) -> None:
    assert text_of(text.format(name), name) == text.format("machine1" if name == "node1" else "node1")


# What goes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu001 kernel: NVRM: up", "node1 kernel: NVRM: up"),
        ("GPU001.Cluster.Internal says (gpu001).", "node1 says (node1)."),
        ("gpu001-ib0 gpu001_efa gpu001.service: up", "node1-ib0 node1_efa node1: up"),
        ("xgpu001 gpu0010 gpu001x", "name-1 name-2 name-3"),
        ("from 10.1.2.3 and 54.23.11.201 to 8.8.8.8:53", "from address-1 and address-2 to address-3:53"),
        ("10.1.2.3@tcp:/abcdef 10.1.2.3", "address-1@tcp:/filesystem-1 address-1"),
        ("2600:1f18:aaaa::1 fe80::1ff:fe23:4567:890a%eth0", "address-1 address-2%eth0"),
        ("ip-10-1-2-3.ec2.internal ip-10-1-2-3", "address-1 address-1"),
        ("addr:2600:1f18:aaaa::1, mac:aa:bb:cc:dd:ee:ff", "addr:address-1, mac:mac-1"),
        ("10.1.2.3-10.1.2.9", "address-1-address-2"),
        ("aa:bb:cc:dd:ee:ff AA-BB-CC-DD-EE-0F enxaabbccddee1f", "mac-1 mac-2 enxmac-3"),
        ("fe80:0000:0000:0000:0c42:a103:000d:1b8a 0c42:a103:000d:1b8a", "address-1 guid-1"),
        (f"GPU-{UUID} MIG-{UUID} {UUID.upper()}", "GPU-{0} MIG-{0} {0}".format("00000000-0000-0000-0000-000000000001")),
        ("1234abcd-1234-5678-9012-1234abcdef12 1234-5678-9012n", "00000000-0000-0000-0000-000000000001 account-1n"),
        ("i-0123456789abcdef0 mi-0123456789abcdef0", "instance-1 instance-2"),
        ("fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com", "filesystem-1.fsx.us-east-1.amazonaws.com"),
        ("vol0123456789abcdef0 eni-0123456789abcdef0", "resource-1 resource-2"),
        ("from ::ffff:10.1.2.3, ::ffff:10.9.8.7", "from address-1, address-2"),
        ("ntp.east.corp, ntp.west.corp, NTP.east.corp.lan", "host-1, host-2, host-1"),
        ("ip-10-1-2-3.ec2.internal, ip-10-1-2-3.eu-west-1.compute.internal", "address-1, address-1"),
        ("login.prod.internal ssh-ed25519 SHA256:" + "A" * 43, "host-1 ssh-ed25519 key-1"),
        ("d9b2d63d53b2410eb6b0a7b6c0c7a3f1", "id-1"),
    ],
)
def test_what_names_a_thing_becomes_a_word(text: str, expected: str) -> None:
    assert text_of(text, "gpu001") == expected


def test_a_name_has_the_same_word_everywhere() -> None:
    first_node = node(
        "ip-10-1-2-3.ec2.internal",
        boot=boot(hostname="ip-10-1-2-3"),
        kernel_log={"lines": [[1.0, "ip-10-1-2-3 lost 10.1.2.3"]]},
        mounts={"mounts": [{"path": "/fsx", "source": "10.1.2.3:/export", "options": "addr=10.1.2.3,rw"}]},
    )
    other = node("gpu002", kernel_log={"lines": [[1.0, "peer ip-10-1-2-3.ec2.internal (10.1.2.3) is slow"]]})
    first, second = redacted(["ip-10-1-2-3.ec2.internal", "gpu002"], first_node, other)
    assert first["node"] == first["collectors"]["boot"]["value"]["hostname"] == "node1"
    assert first["collectors"]["kernel_log"]["value"]["lines"] == [[1.0, "node1 lost address-1"]]
    assert first["collectors"]["mounts"]["value"]["mounts"][0] == {
        "path": "/fsx",
        "source": "address-1:/export",
        "options": "addr=address-1,rw",
    }
    assert second["collectors"]["kernel_log"]["value"]["lines"] == [[1.0, "peer node1 (address-1) is slow"]]


def test_the_inventorys_address_of_a_node_is_the_node() -> None:
    (record,) = redacted(["gpu001"], unreached("gpu001", detail="10.1.2.3:22 refuses"), gpu001="10.1.2.3")
    assert record["detail"] == "node1:22 refuses"


def test_what_one_node_calls_itself_is_replaced_in_the_evidence_of_one_before() -> None:
    early = node("gpu001", kernel_log={"lines": [[1.0, "hydra-7 hangs; serial 1650523020001"]]})
    late = node("gpu002", boot=boot(hostname="hydra-7"), nvml=nvml(gpu(0, serial="1650523020001")))
    first, second = redacted(["gpu001", "gpu002"], early, late)
    assert first["collectors"]["kernel_log"]["value"]["lines"] == [[1.0, "node2 hangs; serial serial-1"]]
    assert second["collectors"]["boot"]["value"]["hostname"] == "node2"


def test_a_node_that_calls_itself_by_a_version_takes_it_from_no_other() -> None:
    lying = node("gpu001", boot=boot(boot_id="6.18.44-fc-v669"), nvml=nvml(gpu(0, serial="580.126.09")))
    honest = node("gpu002", boot=boot(kernel="6.18.44-fc-v669"), nvml=nvml(gpu(0), driver="580.126.09"))
    _, second = redacted(["gpu001", "gpu002"], lying, honest)
    assert second["collectors"]["boot"]["value"]["kernel"] == "6.18.44-fc-v669"
    assert second["collectors"]["nvml"]["value"]["driver"] == "580.126.09"


def test_a_text_that_was_seen_before_its_names_were_known_is_looked_at_again() -> None:
    redaction = Redaction(Cluster("prod", "ssh", (Target("gpu001"),)))
    assert redaction.text("hydra-7 hangs") == "name-1 hangs"
    redaction.learn(node("gpu001", boot=boot(hostname="hydra-7")))
    assert redaction.text("hydra-7 hangs") == "node1 hangs"


def test_file_servers_and_file_systems_are_named_too() -> None:
    mounts = [
        {"path": "/home", "type": "nfs4", "source": "filer7.example.com:/export/home"},
        {"path": "/win", "type": "cifs", "source": "//winbox9/share"},
        {"path": "/fsx", "type": "lustre", "source": "10.1.2.3@tcp:/kq3zhbev"},
    ]
    lines = [[1.0, "nfs: server filer7.example.com not responding"], [2.0, "Lustre: kq3zhbev-OST0001: lost"]]
    (record,) = redacted(["gpu001"], node("gpu001", mounts={"mounts": mounts}, kernel_log={"lines": lines}))
    sources = [mount["source"] for mount in record["collectors"]["mounts"]["value"]["mounts"]]
    assert sources == ["host-1:/export/home", "//host-2/share", "address-1@tcp:/filesystem-1"]
    assert [text for _, text in record["collectors"]["kernel_log"]["value"]["lines"]] == [
        "nfs: server host-1 not responding",
        "Lustre: filesystem-1-OST0001: lost",
    ]


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("jump host bastion.example.com: refused", "jump host host-1: refused"),
        ("no route to db7: Network is unreachable", "no route to host-1: Network is unreachable"),
        ("db7.example.com:22 did not answer in time", "host-1:22 did not answer in time"),
        ("[db7]:2222 refuses the connection", "[host-1]:2222 refuses the connection"),
        ("db7 does not resolve: Name or service not known", "host-1 does not resolve: Name or service not known"),
        ("if it is right: ssh-keyscan -p 22 db7 >> f", "if it is right: ssh-keyscan -p 22 host-1 >> f"),
        ("the recording has no gpu001.json", "the recording has no node1"),
        ("the answer is empty", "the answer is empty"),
        ("connection refused on port 22", "connection refused on port 22"),
    ],
)  # fmt: skip
def test_a_failed_log_in_names_no_host(detail: str, expected: str) -> None:
    (record,) = redacted(["gpu001"], unreached("gpu001", detail=detail))
    assert record["detail"] == expected


def test_a_cluster_whose_nodes_are_called_node_gets_other_words() -> None:
    records = redacted(["node1", "node-2"], saying("node1", "pass"), saying("node-2", "pass"))
    assert [record["node"] for record in records] == ["machine1", "machine2"]


def test_a_short_serial_is_replaced_where_a_serial_stands_and_nowhere_else() -> None:
    (record,) = redacted(["gpu001"], node("gpu001", platform={"serial": "7", "product": "7 of 9"}))
    assert record["collectors"]["platform"]["value"] == {"serial": "serial-1", "product": "7 of 9"}


def test_a_key_may_be_a_name() -> None:
    (record,) = redacted(["gpu001"], node("gpu001", peers={"gpu001": 1, "10.1.2.3": 2, "plain_key": 3}))
    assert record["collectors"]["peers"]["value"] == {"node1": 1, "address-1": 2, "plain_key": 3}


def test_a_run_that_is_stopped_keeps_what_it_has() -> None:
    kept: list[NodeEvidence] = []
    redaction = Redaction(Cluster("prod", "ssh", (Target("gpu001"), Target("gpu002"))))
    with contextlib.suppress(KeyboardInterrupt), redaction.rewriting(kept.append) as learn:
        learn(unreached("gpu001"))
        raise KeyboardInterrupt
    assert [evidence.node for evidence in kept] == ["node1"]


# No planted secret survives


HEX = st.text("0123456789abcdef", min_size=17, max_size=17)
HOSTS = st.one_of(
    st.from_regex(r"[a-z]{2,6}-?[0-9]{2,4}[a-z]?", fullmatch=True),
    st.from_regex(r"[a-z]{2,6}[0-9]{2,3}\.[a-z]{3,6}\.(com|net|internal)", fullmatch=True),
    st.from_regex(r"q[a-z]{4,8}", fullmatch=True),
    st.builds("hyperpod-i-{}".format, HEX),
    st.builds("ip-{}-{}-{}-{}".format, *[st.integers(0, 255)] * 4),
)
PRIVATE = st.ip_addresses(v=4, network="10.0.0.0/8").map(str)
SECRETS = st.one_of(
    PRIVATE,
    st.ip_addresses(v=6, network="2000::/3").map(str),
    st.ip_addresses(v=6, network="2000::/3").map(lambda address: address.exploded),
    st.from_regex(r"([0-9a-f]{2}:){5}[1-9a-f]{2}", fullmatch=True),
    st.uuids().map(str),
    st.uuids().map("GPU-{}".format),
    HEX.map("i-{}".format),
    HEX.map("fs-{}".format),
)
COMMON = {"uverbs", "rdmap", "mlx", "nvme", "efa", "eth", "xid", "pid", "dev", "cpu"}  # and a number: a device's name
TEMPLATES = st.sampled_from(
    ["{}", "lost {} again", "peer={}, retry", "[{}]", "({}): bad", "NVRM: {} ok", "a\t{}\nb", "'{}'", "x:{} y", "{};{}"]
)


@pytest.mark.long
@given(HOSTS, SECRETS, st.from_regex(r"[1-9][0-9]{8,12}", fullmatch=True), TEMPLATES, TEMPLATES)
def test_no_planted_secret_survives(host: str, secret: str, serial: str, one: str, two: str) -> None:
    assume(host.rstrip("0123456789-") not in COMMON)
    plain = (one + "|" + two).replace("{}", "")
    assume(not any(name in plain for name in (host, secret, serial)))
    evidence = node(
        host,
        boot=boot(hostname=host),
        platform={"vendor": one.replace("{}", secret), "serial": serial},
        nvml=nvml(gpu(0, serial=serial)),
        kernel_log={"lines": [[1.0, one.replace("{}", host)], [2.0, two.replace("{}", secret)]]},
        libfabric={"command": "fi_info", "exit": 1, "output": f"{two} | {one}".replace("{}", f"{host} {serial}")},
        mounts={"mounts": [{"source": f"{host}:/x", "options": f"rw,addr={secret}"}], two.replace("{}", secret): 1},
        limits=Collected(Status.DENIED, detail=two.replace("{}", host)),
    )
    mute = unreached("gpu999", Unreached.LOST, f"{one} | {two}".replace("{}", f"{secret} {host}"))
    written = json.dumps(redacted([host, "gpu999"], evidence, mute), ensure_ascii=False).lower()
    bare = secret.removeprefix("GPU-").lower()
    for name in (host, host.split(".")[0], bare, serial):
        assert name not in written


@pytest.mark.long
@given(st.lists(HOSTS, min_size=1, max_size=4, unique_by=lambda host: host.split(".")[0]), st.text(max_size=60))
def test_rewriting_never_raises_and_never_depends_on_the_order_of_nodes(hosts: list[str], text: str) -> None:
    nodes = [node(host, boot=boot(hostname=host), kernel_log={"lines": [[1.0, f"{text} {host}"]]}) for host in hosts]
    there, back = redacted(hosts, *nodes), redacted(hosts, *reversed(nodes))
    assert [record["node"] for record in there] == [record["node"] for record in reversed(back)]


# No verdict changes


OF_A_SITE = {"rebooted", "lustre_unmounted", "trap"}  # forms with a boot id, a file system's name, an address


@pytest.mark.parametrize("line", KNOWN_LINES, ids=lambda line: line.text[:60])
def test_a_line_of_the_kernel_log_keeps_its_form(line: KnownLine) -> None:
    (record,) = redacted(["gpu001"], node("gpu001", kernel_log={"lines": [[1.0, line.text]]}))
    ((_, text),) = record["collectors"]["kernel_log"]["value"]["lines"]
    fitted = form_of(text)
    assert (fitted[0].name if fitted else "") == line.form or line.form in OF_A_SITE


@pytest.mark.parametrize("sample", of_topic("kernel-log"))
def test_the_kernel_log_says_the_same(sample: Sample) -> None:
    lines = [(None, line) for line in sample.lines]
    (record,) = redacted(["gpu001"], node("gpu001", kernel_log={"lines": [list(line) for line in lines]}))
    rewritten = [(seconds, text) for seconds, text in record["collectors"]["kernel_log"]["value"]["lines"]]
    before, after = kernel_log.parse(lines), kernel_log.parse(rewritten)
    assert [(type(event), getattr(event, "code", 0), getattr(event, "pci", "")) for event in before] == [
        (type(event), getattr(event, "code", 0), getattr(event, "pci", "")) for event in after
    ]
