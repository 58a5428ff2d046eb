"""`--cluster X`: what X may be, and what is said of an X that is nothing."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.evidence import NodeEvidence, load
from clusterproof.plugins.evidence.recording import read_cluster, recording_file, write_cluster, write_node
from clusterproof.plugins.inventory import FILE, KINDS, narrow, resolve, with_expectations

FULL = """
[cluster]
name = "prod-west"
connection = "ssh"

[ssh]
user = "ubuntu"
port = 2222
identity_file = "key"
config = "ssh_config"
known_hosts = "known_hosts"
accept_new_host_keys = true

[[group]]
name = "train"
nodes = "gpu[001-003]"
instance_type = "p5.48xlarge"
expect = { gpus = 8, efa = 32 }

[[group]]
nodes = "login1"
user = "admin"

[node.gpu002]
address = "10.0.0.2"
port = 22
expect = { efa = 31 }

[node."login1"]
address = "fe80::1%eth0"
"""


def refusal(text: str) -> str:
    with pytest.raises(InventoryError) as raised:
        resolve(text)
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def written(folder: Path, text: str) -> str:
    path = folder / "inventory.toml"
    path.write_text(text)
    return str(path)


# Kinds


def test_local_is_this_machine_by_its_own_name() -> None:
    assert resolve("local") == Cluster("local", "local", (Target(socket.gethostname()),))


def test_the_demo_is_a_recording_that_comes_with_the_package() -> None:
    demo = resolve("demo")
    assert demo.connection == "replay"
    assert {f"{target.name}.json" for target in demo.targets} == {
        path.name for path in Path(demo.settings["recording"], "nodes").iterdir()
    }


@pytest.mark.parametrize(
    ("text", "name", "targets"),
    [
        ("ssh:gpu1", "gpu1", (Target("gpu1"),)),
        ("ssh:gpu[001-002]", "gpu[001-002]", (Target("gpu001"), Target("gpu002"))),
        ("ssh:root@gpu1:2222", "gpu1", (Target("gpu1", user="root", port=2222),)),
        ("ssh:a.b-c+d@10.0.0.1", "10.0.0.1", (Target("10.0.0.1", user="a.b-c+d"),)),
        ("ssh:me@realm@gpu1", "gpu1", (Target("gpu1", user="me@realm"),)),
        ("ssh:b,a,b", "a,b", (Target("a"), Target("b"))),
    ],
)
def test_ssh_names_nodes_a_user_and_a_port(text: str, name: str, targets: tuple[Target, ...]) -> None:
    assert resolve(text) == Cluster(name, "ssh", targets)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", "'' is empty; expected local, demo, replay:DIR, capture:PATH, ssh:[user@]NODESET[:port], "),
        ("", "ec2:tag:KEY=VALUE, asg:NAME, a HyperPod cluster's NAME or ARN, or FILE.toml"),
        ("  ", "is empty"),
        ("lokal", "did you mean local?"),
        ("LOCAL", "did you mean local?"),
        ("demo:", "did you mean demo?"),
        ("shh:gpu1", "did you mean ssh:?"),
        ("ssh", "did you mean ssh:?"),
        ("reply:/x", "did you mean replay:?"),
        ("gpu[001-004]", "did you mean ssh:gpu[001-004]?"),
        ("/", "is a folder (did you mean replay:/, or capture:/?)"),
        ("x!y", "is of no known kind; expected"),
        ("a\nb", "is of no known kind; expected"),
        ("\0", "is of no known kind; expected"),
        ("x" * 5000, "is of no known kind; expected"),
        ("ssh:", "an empty nodeset"),
        ("ssh:gpu[1", "a bracket without its partner"),
        ("ssh:gpu[1-99999999]", "at most 100,000"),
        ("ssh:@gpu1", "'' is no user"),
        ("ssh:a b@gpu1", "'a b' is no user"),
        ("ssh:-oX@gpu1", "'-oX' is no user"),
        ("ssh:$(id)@gpu1", "'$(id)' is no user"),
        ("ssh:gpu1:", "'' is no port"),
        ("ssh:gpu1:ssh", "'ssh' is no port"),
        ("ssh:gpu1:0", "'0' is no port"),
        ("ssh:gpu1:65536", "'65536' is no port"),
        ("replay:", "names no folder"),
        ("replay:/nowhere", "No such file or directory; expected a folder that --record wrote"),
        ("replay:/\0", "null"),
        ("capture:", "names no folder"),
        ("capture:/nowhere", "no such file or folder; expected a folder of files"),
        ("capture:/\0", "no such file or folder"),
        ("/nowhere.toml", "No such file or directory; expected an inventory"),
    ],
)
def test_what_names_no_cluster_is_one_line_with_the_nearest_that_does(text: str, data: str) -> None:
    assert data in refusal(text)


@given(st.text(max_size=30), st.sampled_from(["", "ssh:", "replay:", "capture:/nowhere/", "demo"]))
def test_any_text_names_a_cluster_or_is_refused_in_one_line(text: str, prefix: str) -> None:
    line = "one line"
    try:
        assert resolve(prefix + text).targets
    except InventoryError as refused:
        line = str(refused)
    assert len(line.splitlines()) == 1


def test_options_of_the_command_line_outrank_an_inventorys_settings(tmp_path: Path) -> None:
    path = written(tmp_path, '[ssh]\nuser = "ubuntu"\nport = 22\n[[group]]\nnodes = "a"\n')
    assert resolve(path, {"user": "root"}).settings == {"user": "root", "port": "22"}


def test_every_kind_has_its_form_and_its_resolver() -> None:
    assert [kind.form for kind in (*KINDS, FILE)] == [
        "local",
        "demo",
        "replay:DIR",
        "capture:PATH",
        "ssh:[user@]NODESET[:port]",
        "slurm:[PARTITION|NODESET|job:ID]",
        "ec2:tag:KEY=VALUE",
        "asg:NAME",
        "FILE.toml",
    ]


# Narrowing and expectations

CLUSTER = resolve("ssh:gpu[1-4],login1")


@pytest.mark.parametrize(
    ("nodes", "exclude", "left"),
    [
        ("", "", ["gpu1", "gpu2", "gpu3", "gpu4", "login1"]),
        ("gpu[2-3]", "", ["gpu2", "gpu3"]),
        ("", "login1,gpu4", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[1-3]", "gpu2", ["gpu1", "gpu3"]),
        ("gpu1", "gpu2", ["gpu1"]),
    ],
)
def test_a_cluster_is_narrowed_to_some_nodes(nodes: str, exclude: str, left: list[str]) -> None:
    assert [target.name for target in narrow(CLUSTER, nodes, exclude).targets] == left


@pytest.mark.parametrize(
    ("nodes", "exclude", "data"),
    [
        ("gpu[4-6]", "", "--nodes: gpu[5-6] is not in gpu[1-4],login1"),
        ("", "logn1", "--exclude: logn1 is not in gpu[1-4],login1 (did you mean login1?)"),
        ("gpu[1", "", "--nodes: 'gpu[1' has a bracket"),
        ("gpu1", "gpu1", "no node of gpu[1-4],login1 is left by --nodes"),
        ("", "gpu[1-4],login1", "no node of gpu[1-4],login1 is left by --nodes"),
    ],
)
def test_a_narrowing_that_cannot_be_meant_is_refused(nodes: str, exclude: str, data: str) -> None:
    with pytest.raises(InventoryError, match=f"^{_literal(data)}"):
        narrow(CLUSTER, nodes, exclude)


def _literal(text: str) -> str:
    return "".join(f"[{c}]" if c in "()?" else "\\" + c if c in "[]." else c for c in text)


def test_expectations_of_the_command_line_outrank_the_inventorys() -> None:
    inventory = Cluster("c", "ssh", (Target("a", instance_type="p5", expect={"gpus": 8, "efa": 32}), Target("b")))
    data = with_expectations(inventory, "p4d.24xlarge", "efa=4,nvlinks=12")
    assert [(target.instance_type, target.expect) for target in data.targets] == [
        ("p4d.24xlarge", {"gpus": 8, "efa": 4, "nvlinks": 12}),
        ("p4d.24xlarge", {"efa": 4, "nvlinks": 12}),
    ]
    assert with_expectations(inventory) == inventory


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("gpu=8", "'gpu' is no known resource (did you mean gpus?)"),
        ("gpus", "'gpus' is not NAME=NUMBER"),
        ("gpus=-1", "'gpus=-1' is not NAME=NUMBER"),
        ("gpus=1.5", "'gpus=1.5' is not NAME=NUMBER"),
        ("gpus=8,", "'' is not NAME=NUMBER"),
        ("gpus=8,gpus=8", "gives gpus twice"),
        ("gpus=99999999", "is not NAME=NUMBER"),
        (" ", "is not NAME=NUMBER"),
    ],
)
def test_an_expectation_that_counts_nothing_is_refused(text: str, data: str) -> None:
    with pytest.raises(InventoryError) as raised:
        with_expectations(CLUSTER, expect=text)
    assert data in str(raised.value)


def test_an_expectation_of_none_is_an_expectation() -> None:
    assert with_expectations(CLUSTER, expect="gpus=0").targets[0].expect == {"gpus": 0}


# FILE.toml


def test_an_inventory_file_says_everything(tmp_path: Path) -> None:
    for name in ("key", "ssh_config", "known_hosts"):
        (tmp_path / name).touch()
    eight = {"gpus": 8, "efa": 32}
    assert resolve(written(tmp_path, FULL)) == Cluster(
        name="prod-west",
        connection="ssh",
        targets=(
            Target("gpu001", group="train", instance_type="p5.48xlarge", expect=eight),
            Target("gpu002", "10.0.0.2", "", 22, "train", "p5.48xlarge", {"gpus": 8, "efa": 31}),
            Target("gpu003", group="train", instance_type="p5.48xlarge", expect=eight),
            Target("login1", "fe80::1%eth0", user="admin"),
        ),
        settings={
            "user": "ubuntu",
            "port": "2222",
            "identity_file": str(tmp_path / "key"),
            "config": str(tmp_path / "ssh_config"),
            "known_hosts": str(tmp_path / "known_hosts"),
            "accept_new_host_keys": "yes",
        },
    )


def test_an_inventory_file_needs_only_nodes(tmp_path: Path) -> None:
    assert resolve(written(tmp_path, '[[group]]\nnodes = "a"')) == Cluster("inventory", "ssh", (Target("a"),))


def test_an_inventory_may_have_any_file_name(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text('[[group]]\nnodes = "a"')
    assert resolve(str(tmp_path / "cluster")).name == "cluster"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("[cluster", "is not TOML"),
        ("x = 1", "'x' is not a known key; expected cluster, ssh, group, node"),
        ("groups = []", "'groups' is not a known key (did you mean group?)"),
        ("[cluster]\nnam = 'x'", "[cluster]: 'nam' is not a known key (did you mean name?)"),
        ("cluster = 1", "[cluster] is a whole number; expected a table"),
        ("[cluster]\nname = 7", "name is a whole number; expected text"),
        ("[cluster]\nname = ''", "name is ''; expected text on one line"),
        ('[cluster]\nname = "a\\nb"', "expected text on one line, and not empty"),
        ("[cluster]\nconnection = 'shh'", "connection is 'shh' (did you mean ssh?); expected ssh or local"),
        ("[ssh]\nusr = 'x'", "(did you mean user?)"),
        ("[ssh]\nuser = 'a b'", "user is 'a b'; expected a log-in name"),
        ("[ssh]\nport = '22'", "port is text; expected a whole number"),
        ("[ssh]\nport = true", "port is true or false; expected a whole number"),
        ("[ssh]\nport = 22.5", "port is a number with a fraction; expected a whole number"),
        ("[ssh]\nport = 0", "port is 0; expected 1 to 65535"),
        ("[ssh]\nidentity_file = 'none'", "none: No such file or directory; expected a file"),
        ("[ssh]\naccept_new_host_keys = 'yes'", "is text; expected true or false"),
        ("", "has no nodes; expected a [[group]] with nodes"),
        ("[group]\nnodes = 'a'", "group is a table; expected a list of tables"),
        ("group = [1]", "group 1 is a whole number; expected a table"),
        ("[[group]]", "group 1 has no nodes; expected one"),
        ("[[group]]\nnodes = 'a b'", "group 1: nodes: 'a b' has ' ' in it"),
        ("[[group]]\nnodes = 'a'\nnode = 'b'", "(did you mean nodes?)"),
        ("[[group]]\nnodes = 'a'\n[[group]]\nnodes = 'b,a'", "group 2 has the node a, which is in another group"),
        ("[[group]]\nnodes = 'a'\nexpect = 8", "[expect] is a whole number; expected a table"),
        ("[[group]]\nnodes = 'a'\nexpect = {gpu = 8}", "'gpu' is no known resource (did you mean gpus?)"),
        ("[[group]]\nnodes = 'a'\nexpect = {gpus = -8}", "gpus is -8; expected 0 to 100000"),
        ("[[group]]\nnodes = 'gpu1'\n[node.gpu2]\nport = 1", "'gpu2' is in no group (did you mean gpu1?)"),
        ("[[group]]\nnodes = 'a'\n[node]\na = 7", "[a] is a whole number; expected a table"),
        ("[[group]]\nnodes = 'a'\n[node.a]\nadress = 'x'", "(did you mean address?)"),
        ("[[group]]\nnodes = 'a'\n[node.a]\naddress = 'x;y'", "expected a host name or an IP address"),
    ],
)
def test_a_slip_in_an_inventory_file_is_one_line_that_says_where(tmp_path: Path, text: str, data: str) -> None:
    assert data in refusal(written(tmp_path, text))


def test_an_inventory_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    assert "byte 0 is not UTF-8" in refusal(str(tmp_path / "x.toml"))


# Recordings

RECORDED = Cluster(
    "prod",
    "ssh",
    (
        Target("gpu001", "10.0.0.1", group="train", instance_type="p5.48xlarge", expect={"gpus": 8}),
        Target("a name / of its own"),
    ),
    {"identity_file": "/home/x/secret"},
)


def test_a_recorded_cluster_is_read_back_as_a_replay(tmp_path: Path) -> None:
    write_cluster(tmp_path / "new", RECORDED)
    assert resolve(f"replay:{tmp_path}/new") == Cluster(
        "prod", "replay", RECORDED.targets, {"recording": f"{tmp_path}/new", "ec2": "by evidence"}
    )
    assert "secret" not in (tmp_path / "new" / "cluster.json").read_text()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cluster.json"]


def test_a_recorded_node_lies_under_its_own_file(tmp_path: Path) -> None:
    evidence = NodeEvidence("a name / of its own", detail="\ud800 half a character")
    write_node(tmp_path, evidence)
    assert load((tmp_path / "nodes" / recording_file(evidence.node)).read_bytes()) == evidence


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gpu-001_a.b", "gpu-001_a.b.json"),
        ("..", "%2E..json"),
        (".hidden", "%2Ehidden.json"),
        ("a/b", "a%2Fb.json"),
        ("a%2Fb", "a%252Fb.json"),
        ("a~b", "a%7Eb.json"),
        ("ä", "%C3%A4.json"),
        ("", "%.json"),
    ],
)
def test_a_node_name_becomes_a_safe_file_name(name: str, file: str) -> None:
    assert recording_file(name) == file


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_each_name_has_a_file_of_its_own_on_any_file_system(names: list[str]) -> None:
    first, second = map(recording_file, names)
    assert first != second
    assert all(len(file) <= 240 and file.isascii() and "/" not in file and file[0] != "." for file in (first, second))


@pytest.mark.parametrize(
    ("record", "data"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is a list; expected a table"),
        ({"schema": 2}, "schema is 2; expected 1"),
        ({"schema": 1}, "has no nodes"),
        ({"schema": 1, "nodes": {}}, "nodes is a table; expected a list"),
        ({"schema": 1, "nodes": [{}]}, "nodes 1 has no name"),
        ({"schema": 1, "nodes": [{"name": "a"}]}, "has no cluster"),
        ({"schema": 1, "cluster": "c", "nodes": [{"name": "a"}, {"name": "a"}]}, "has the node 'a' twice"),
        ({"schema": 1, "cluster": "c", "nodes": [{"name": "a", "expect": {"gpus": "8"}}]}, "gpus is text"),
    ],
)
def test_a_broken_recording_is_one_line_that_says_where(tmp_path: Path, record: object, data: str) -> None:
    (tmp_path / "cluster.json").write_text(record if isinstance(record, str) else json.dumps(record))
    assert data in refusal(f"replay:{tmp_path}")


def test_a_recording_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    write_cluster(tmp_path, RECORDED)
    unwritable = Cluster("c", "ssh", (Target("a", expect={"gpus": object()}),))  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        write_cluster(tmp_path, unwritable)
    assert read_cluster(tmp_path).name == "prod"
