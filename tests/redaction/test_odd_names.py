"""Odd names of nodes: with blanks, slashes and letters of any language, as EC2 Name tags may be; in several domains."""

from __future__ import annotations

from datetime import date

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.policy import Disabled, Policy
from clusterproof.plugins.core.strict import parse_toml
from clusterproof.plugins.redaction.policy import file_without_names
from clusterproof.plugins.redaction.redact import Redaction


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lost rack 3/node 7 again", "lost node1 again"),
        ("lost gpu-ü7 again", "lost node2 again"),
        ("gpu 10_eth0 and gpu 1.", "node4_eth0 and node3."),  # one name begins with the other
    ],
)
def test_a_name_that_is_no_word_is_replaced_too(text: str, shown: str) -> None:
    names = ("rack 3/node 7", "gpu-ü7", "gpu 1", "gpu 10")
    assert Redaction(Cluster("prod", "ssm", tuple(map(Target, names)))).text(text) == shown


@pytest.mark.parametrize("name", ["c1", "N1", "head", "gpu009", "acme-gpu-1.example.com"])
def test_an_exception_for_a_node_is_for_the_same_node(name: str) -> None:
    rule = Disabled("capped", date(2999, 1, 1), frozenset({name, "elsewhere"}))
    policy = Policy("clusterproof.toml", disabled={"gpu.power_limit": rule})
    redaction = Redaction(Cluster("prod", "ssh", (Target("c0"), Target(name))), policy)
    shown = redaction.cluster.targets[1].name
    assert redaction.policy.disabled["gpu.power_limit"].nodes == {shown, "host-1"}
    record = {"disabled": {"gpu.power_limit": {"reason": "capped", "nodes": f"c0,{name},elsewhere"}}}
    names = redaction.text, redaction.type_word, redaction.version, redaction.node_word
    nodes = parse_toml(file_without_names(record, *names), "policy.toml")["disabled"]["gpu.power_limit"]["nodes"]
    assert set(expand(nodes)) == {target.name for target in redaction.cluster.targets} | {"host-1"}


def test_a_node_is_the_same_in_every_domain() -> None:
    redaction = Redaction(Cluster("c", "ssh", (Target("gpu7"), Target("gpu8"))))
    first = redaction.text("gpu7")
    assert redaction.text("gpu7.prod.internal: gpu7.default.svc.cluster.local:") == f"{first}: {first}:"
