"""What a user puts where a file of his is looked for: root follows no link of his, and opens nothing but a file."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Status
from tests.builders.probed import SOON, probe_node
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, entered, healthy_cpu
from tests.untrusted.programs import USER

pytestmark = needs_nodes

KEYS = "/home/eve/.ssh/authorized_keys"
# Each is what the user does below /home/eve/.ssh, and what is then known of his keys. Whoever opens /run/watched for
# reading lets its writer go on, who leaves a mark.
LURES = {
    "a link to a file of root's": ("ln -s /etc/shadow authorized_keys", "ELOOP"),
    "a link to a device": ("ln -s /dev/watchdog authorized_keys", "ELOOP"),
    "a link to a pipe": ("ln -s /run/watched authorized_keys", "ELOOP"),
    "a pipe": ("mkfifo authorized_keys; (exec 3>authorized_keys; touch /tmp/opened) &", "EINVAL"),
    "a folder": ("mkdir authorized_keys", "EINVAL"),
    "a link for the folder": ("cd ..; mv .ssh aside; ln -s /run/lure .ssh", "ENOTDIR"),
    "a file that he may not read himself": ("echo x >authorized_keys; chmod 0 authorized_keys", "EACCES"),
}


def with_home(node: Node, script: str) -> None:
    """A home of the user's, in which he does this."""
    prepare = f"""
        mkdir -p /home/eve/.ssh /run/lure; chown -R {USER} /home/eve; chmod 1777 /tmp
        mkfifo /run/watched; chmod 666 /run/watched; (exec 3>/run/watched; touch /tmp/opened) >/dev/null 2>&1 &
        echo 'root:$6$secret:1' >/run/lure/authorized_keys; chmod 600 /run/lure/authorized_keys"""
    node.run(["sh", "-c", prepare])
    lure = f"cd /home/eve/.ssh; ({script}) >/dev/null 2>&1"
    node.run(["setpriv", f"--reuid={USER}", "--clear-groups", "sh", "-c", lure])


def keys_of(node: Node) -> Any:
    collector = probe_node(node, ["image"], SOON).collectors["image"]
    assert collector.status is Status.READ
    return collector.value["keys"].get("eve")


@pytest.mark.parametrize("lure", LURES)
def test_what_is_no_file_of_the_users_is_not_opened_and_not_known(lure: str) -> None:
    script, why = LURES[lure]
    with entered(healthy_cpu()) as node:
        with_home(node, script)
        found = keys_of(node)
        assert found["error"] == why
        assert not (node.root / "tmp/opened").exists()


def test_a_file_of_the_users_own_is_read_as_he_would_read_it() -> None:
    with entered(healthy_cpu()) as node:
        with_home(node, "printf 'ssh-rsa A a\\nssh-rsa B b\\n' >authorized_keys; chmod 600 authorized_keys")
        assert keys_of(node) == {"keys": 2, "commands": 0}


def test_a_history_that_is_linked_to_nothing_is_not_left_behind() -> None:
    with entered(healthy_cpu()) as node:
        with_home(node, "ln -s /dev/null ../.bash_history; ln -s /etc/shadow id_rsa")
        data = probe_node(node, ["image"], SOON).collectors["image"].value
    of_user = {entry["path"]: entry["bytes"] for entry in data["left"] if "eve" in entry["path"]}
    assert {path: size["error"] for path, size in of_user.items()} == {"/home/eve/.ssh/id_rsa": "ELOOP"}
