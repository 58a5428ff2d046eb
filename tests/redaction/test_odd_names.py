"""Node names that are no single words, as EC2 Name tags may be: with blanks, slashes and letters of any language."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
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
