"""Third parties bring an inventory, a connection, a kind of evidence and checks of their own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
from clusterproof.plugins.transport import Answer
from clusterproof.plugins.transport import connection_for
from clusterproof.plugins.core.cluster import Cluster, Target

class Relay:
    def run(self, targets, program, limits, answered):
        print("relayed to", [target.name for target in targets])
        connection_for("local").run(targets, program, limits, answered)

def pytest_cluster_inventory(config, text):
    if text.startswith("rack:"):
        return Cluster("rack", "relay", (Target("left"), Target("right")))

def pytest_cluster_connection(config, cluster):
    return Relay() if cluster.connection == "relay" else None

def pytest_cluster_collectors(config):
    return [str(config.rootpath / "weather.py")]
"""

WEATHER = '''
"""What the weather is."""
from __future__ import annotations

from clusterproof.plugins.agent.reading import Node


def read(node: Node) -> object:
    """The sky."""
    return {"sky": "blue", "host": node.read("/proc/sys/kernel/hostname").strip()}
'''

CHECK = """
def test_sky(node):
    \\"\\"\\"The sky is grey.\\"\\"\\"
    sky = node.collector("weather").value["sky"]
    assert sky == "grey", f"the sky is {sky}; expected grey"
"""


def test_a_third_party_extends_the_suite_the_pytest_way(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(weather=WEATHER, test_weather=CHECK.replace("\\", ""))
    ran = pytester.runpytest_subprocess(
        "-p", "clusterproof.plugins.cluster", "--cluster", "rack:7", "-s", "-p", "no:cacheprovider"
    )
    ran.stdout.fnmatch_lines(["relayed to *left*right*", "*The sky is grey: 2 of 2 nodes (left,right)*"])
    ran.stdout.fnmatch_lines(["*the sky is blue; expected grey*"])
    assert ran.ret == 1
