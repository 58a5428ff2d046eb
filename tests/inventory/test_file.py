"""An inventory file: its valid content, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.inventory import resolve
from tests.inventory.refused import refusal, written

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


# FILE.toml


def test_groups_without_names_are_two_groups(tmp_path: Path) -> None:
    text = '[[group]]\nnodes = "gpu[1-2]"\n[[group]]\nnodes = "login1"\n[[group]]\nname = "cpu"\nnodes = "cpu1"\n'
    groups = {target.name: target.group for target in resolve(written(tmp_path, text)).targets}
    assert groups == {"gpu1": "group 1", "gpu2": "group 1", "login1": "group 2", "cpu1": "cpu"}


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
    ("text", "message"),
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
        ("[ssh]\nidentity_file = '~nobody-here/key'", "~nobody-here/key: No such file or directory; expected a file"),
        ("[ssh]\nidentity_file = 'none'", "none: No such file or directory; expected a file"),
        (
            "[cluster]\nconnection = 'local'\n[[group]]\nnodes = 'gpu[1-3]'",
            "[cluster]: connection is local, which is this machine, and 3 nodes are named; expected one node, or",
        ),
        ("[ssh]\nidentity_file = '~nosuchuser/key'", "~nosuchuser/key: No such file or directory; expected a file"),
        ("[ssh]\naccept_new_host_keys = 'yes'", "is text; expected true or false"),
        ("", "has no nodes; expected a [[group]] with nodes"),
        ("[group]\nnodes = 'a'", "group is a table; expected a list of tables"),
        ("group = [1]", "group 1 is a whole number; expected a table"),
        ("[[group]]", "group 1 has no nodes; expected one"),
        ("[[group]]\nnodes = 'a b'", "group 1: nodes: 'a b' has ' ' in it"),
        ("[[group]]\nnodes = 'a'\nnode = 'b'", "(did you mean nodes?)"),
        ("[[group]]\nnodes = 'a'\n[[group]]\nnodes = 'b,a'", "group 2 has the node a, which is in another group"),
        ("[[group]]\nnodes = 'a'\nexpect = 8", "[expect] is a whole number; expected a table"),
        ("[[group]]\nnodes = 'a'\nexpect = {gpu = 8}", "'gpu' is not a known resource (did you mean gpus?)"),
        ("[[group]]\nnodes = 'a'\nexpect = {gpus = -8}", "gpus is -8; expected 0 to 100000"),
        ("[[group]]\nnodes = 'gpu1'\n[node.gpu2]\nport = 1", "'gpu2' is in no group (did you mean gpu1?)"),
        ("[[group]]\nnodes = 'a'\n[node]\na = 7", "[a] is a whole number; expected a table"),
        ("[[group]]\nnodes = 'a'\n[node.a]\nadress = 'x'", "(did you mean address?)"),
        ("[[group]]\nnodes = 'a'\n[node.a]\naddress = 'x;y'", "expected a host name or an IP address"),
    ],
)
def test_a_slip_in_an_inventory_file_is_one_line_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(written(tmp_path, text))


def test_an_inventory_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    assert "byte 0 is not UTF-8" in refusal(str(tmp_path / "x.toml"))


def test_the_byte_order_mark_of_an_editor_is_no_part_of_an_inventory(tmp_path: Path) -> None:
    text = "\ufeff[cluster]\nname = 'x'\nconnection = 'ssh'\n[[group]]\nnodes = 'gpu001'\n"
    assert [target.name for target in resolve(str(written(tmp_path, text))).targets] == ["gpu001"]


MEBIBYTE = 1 << 20
BOMBS = {
    "a key of half a million parts": "a." * (MEBIBYTE // 2) + "a = 1",
    "such a key in quotes": '"a".' * (MEBIBYTE // 4) + "a = 1",
    "such a key within a table": "x = {" + "a." * (MEBIBYTE // 2) + "a = 1}",
    "a table's name of half a million parts": "[" + "a." * (MEBIBYTE // 2) + "a]",
    "a number of a million digits": "a = " + "9" * MEBIBYTE,
    "one in hexadecimal": "a = 0x" + "f" * MEBIBYTE,
    "lists in lists": "a = " + "[" * MEBIBYTE,
    "tables in tables": "a = " + "{b=" * (MEBIBYTE // 3),
}


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS)
def test_what_no_parser_ends_with_is_one_line_at_once(tmp_path: Path, bomb: str) -> None:
    assert "inventory.toml is not TOML: " in refusal(str(written(tmp_path, BOMBS[bomb])))


def test_a_list_of_ten_thousand_nodes_in_one_line_is_none_of_these(tmp_path: Path) -> None:
    names = ", ".join(f"'gpu{number:05d}.rack.row.dc.example'" for number in range(10_000))
    text = f"[cluster]\nname = 'x'\nconnection = 'ssh'\n[[group]]\nnodes = [{names}] # {'.' * 200}\n"
    assert "is not TOML" not in refusal(str(written(tmp_path, text)))
