"""A user who takes every port: that is nothing against a node, though it can then ask nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import verdict_of
from tests.testbed.needs import needs_root

TAKEN = """
import json, socket, sys
open("/proc/sys/net/ipv4/ip_local_port_range", "w").write("40000 40009")
held = []
for port in range(40000, 40010):
    held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    held[-1].bind(("127.0.0.1", port))
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.network import collect_naming
node = Node(sys.argv[1], collector_s=0.2)
print(json.dumps([collect_naming._hosts(node, "gpu001"), collect_naming._with_answers(node, ["127.0.0.1"], "gpu001")]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("127.0.0.1 gpu001\n")
    return tmp_path


@needs_root
@pytest.mark.long
def test_a_node_whose_users_have_taken_every_port_keeps_its_name_and_its_nameservers(root: Path) -> None:
    words = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "-", sys.executable, "-c", TAKEN, str(root)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    hosts, nameservers = json.loads(ran.stdout)
    naming = {"hostname": "gpu001", "hosts": hosts, "nameservers": nameservers, "addresses": [], "duplicates": []}
    assert verdict_of("network.own_name", naming=naming).verdict is Verdict.PASS, hosts
    assert verdict_of("network.nameservers", naming=naming).verdict is Verdict.INCOMPLETE, nameservers
