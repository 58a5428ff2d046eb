"""What Slurm's commands print of its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.slurm.facts import OUT_OF_USE, SlurmNode, SlurmNodes
from tests.testbed.outputs import SCONTROL


def nodes(text: str) -> list[dict[str, str]]:
    (form,) = [form for form in slurm.FORMS if form.recognises(text)]
    data: Any = form.read(text)
    return list(data["slurm_node"]["nodes"])


def test_scontrol_shows_a_node_in_lines_and_in_one() -> None:
    in_one = " ".join(SCONTROL.split("\n   "))
    assert nodes(SCONTROL) == nodes(in_one)
    assert nodes(SCONTROL)[0]["gres"] == "gpu:h100:8(S:0-1)"


def test_a_reason_has_its_user_and_its_time() -> None:
    (node,) = nodes(f"{SCONTROL.rstrip()}\n   Reason=bad [GPU] cable [root@2026-07-22T23:31:17]\n")
    assert (node["reason"], node["reason_user"]) == ("bad [GPU] cable", "root")
    assert node["reason_time"] == "2026-07-22T23:31:17"


@pytest.mark.parametrize(
    "text",
    [
        (
            "REASON               USER      TIMESTAMP           NODELIST\n"
            "Kill task failed     root      2026-01-25T15:12:23 gpu[001-002]\n"
            "Not responding       slurm     2026-01-26T15:12:23 gpu003\n"
        ),
        (
            "REASON           USER     TIMESTAMP           STATE NODELIST\n"
            "Kill task failed root(0)  2026-01-25T15:12:23 drain gpu[001-002]\n"
        ),
        (
            "Fri Jan 26 10:00:00 2026\n"
            "NODELIST NODES PARTITION STATE   CPUS S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON\n"
            "gpu001   1     gpu*      drained 192  2:48:2 1900000 0     1      (null)   Kill task failed\n"
            "gpu002   1     gpu*      drained 192  2:48:2 1900000 0     1      (null)   Kill task failed\n"
        ),
        "NODELIST STATE REASON\ngpu001 drain Kill task failed\ngpu002 drain Kill task failed\n",
    ],
)
def test_sinfo_says_why_nodes_take_no_jobs_in_each_of_its_tables(text: str) -> None:
    found = {node["name"]: SlurmNode(node) for node in nodes(text)}
    for name in ("gpu001", "gpu002"):
        assert found[name].why.startswith(" (Kill task failed")
        assert found[name].states & OUT_OF_USE


def test_a_node_without_a_reason_has_none_in_sinfos_table() -> None:
    (node,) = nodes("NODELIST STATE REASON\ngpu001 idle none\n")
    assert (node["state"], SlurmNode(node).why) == ("IDLE", "")


def test_a_table_of_jobs_is_none_of_nodes() -> None:
    assert not slurm.is_sinfo("JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n")


def test_sinfo_nodes_are_listed_once_with_their_state() -> None:
    text = (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "gpu*  up  infinite  2  drain* gpu[001-002]\nall  up  infinite  3  idle~ gpu[001-003]\n"
    )
    assert {node["name"]: node["state"] for node in nodes(text)} == {
        "gpu001": "DRAIN*",
        "gpu002": "DRAIN*",
        "gpu003": "IDLE",
    }


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:8", 8),
        ("gpu:model_a:2,gpu:model_b:2", 4),
        ("mig:3g.40gb:7,gpu:a100:4", 4),
        ("tmpdisk:100", 0),
        ("", 0),
    ],
)
def test_the_gpus_in_a_gres_of_any_form(gres: str, gpus: int) -> None:
    assert SlurmNode({"gres": gres}).gpus == gpus


def test_an_answer_about_one_other_node_is_not_this_nodes() -> None:
    data = SlurmNodes({"nodes": [{"name": "gpu007", "host": "gpu007", "state": "DOWN"}]})
    assert data.named("node").state == "DOWN"  # a capture of one file, which has no name of its own
    with pytest.raises(Incomplete, match="is not among them"):
        data.named("gpu001", "gpu001")
