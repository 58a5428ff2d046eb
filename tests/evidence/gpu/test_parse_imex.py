"""What nvidia-imex-ctl -N prints."""

from __future__ import annotations

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.evidence.gpu.parse_imex import read_domain
from clusterproof.plugins.evidence.parsing import CaptureError
from tests.testbed.imex import domain

LEGEND = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

"""
OLDER = f"""{LEGEND}3/25/2025 10:39:43.659
Nodes:
Node #0   - 10.136.206.48   - READY

 Nodes From\\To  0
       0        C
Domain State: UP
"""
NEWER = f"""{LEGEND}5/12/2025 06:08:10.580
Nodes:
Node #0   - 172.31.48.81    - READY                - Version: 570.172
Node #1   - 172.31.48.98    - READY                - Version: 570.172
Node #2   - 172.31.48.221   - UNAVAILABLE          - Version: 570.172

 Nodes From\\To  0   1   2
       0        C   C   !V!
       1        C   C   N
       2        I   !M! C
Domain State: DEGRADED
"""


def test_the_table_of_an_older_program_has_no_versions() -> None:
    found = read_domain(OLDER)
    (node,) = found.nodes
    assert found.state == "UP"
    assert (node.number, node.host, node.status, node.version, dict(node.links)) == (
        *(0, "10.136.206.48", "READY", ""),
        {0: "CONNECTED"},
    )


def test_each_letter_of_the_table_is_the_word_that_the_json_has() -> None:
    found = read_domain(NEWER)
    assert found.state == "DEGRADED"
    assert [(node.status, node.version) for node in found.nodes] == [
        ("READY", "570.172"),
        ("READY", "570.172"),
        ("UNAVAILABLE", "570.172"),
    ]
    assert [dict(node.links) for node in found.nodes] == [
        {0: "CONNECTED", 1: "CONNECTED", 2: "VERSION_MISMATCH"},
        {0: "CONNECTED", 1: "CONNECTED", 2: "NEVER_CONNECTED"},
        {0: "INVALID", 1: "NODE_MAP_MISMATCH", 2: "CONNECTED"},
    ]


def test_the_json_says_the_same_and_host_names() -> None:
    found = read_domain("some warning\n" + domain("580.173.02", {2: "INVALID"}))
    assert found.state == "UP"
    assert [(node.host, node.host_name) for node in found.nodes][:2] == [("10.1.2.9", "gpu001"), ("10.1.2.1", "gpu002")]
    assert dict(found.nodes[0].links) == {0: "CONNECTED", 1: "CONNECTED", 2: "INVALID", 3: "CONNECTED"}


@pytest.mark.parametrize("text", [OLDER, NEWER, domain("580.173.02")])
def test_a_capture_of_either_form_is_the_collector(text: str) -> None:
    data, _ = read_text(text)
    assert data["imex"]["domain"]["output"].strip() == text.strip()  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "Failed to connect", '{"status": "UP", "nodes": {}}', '{"nodes": [1]}', "{"])
def test_what_names_no_node_is_no_domain(text: str) -> None:
    with pytest.raises(CaptureError):
        read_domain(text)
