"""Slurm's command output about its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.slurm import parse_sinfo as sinfo
from clusterproof.plugins.evidence.slurm import slurm as collector
from clusterproof.plugins.evidence.slurm.facts import OUT_OF_USE, SlurmNode, SlurmNodes
from tests.captures.captured import output_of
from tests.testbed.outputs import SCONTROL


def nodes(text: str) -> list[dict[str, str]]:
    (form,) = [form for form in slurm.FORMS if form.recognises(text)]
    collected: Any = form.read(text)
    return list(collected["slurm_node"]["nodes"])


def test_scontrol_shows_a_node_in_lines_and_in_one() -> None:
    in_one = " ".join(SCONTROL.split("\n   "))
    assert nodes(SCONTROL) == nodes(in_one)
    assert nodes(SCONTROL)[0]["gres"] == "gpu:h100:8(S:0-1)"


def test_a_reason_has_its_user_and_its_time() -> None:
    (node,) = nodes(f"{SCONTROL.rstrip()}\n   Reason=bad [GPU] cable [root@2026-07-22T23:31:17]\n")
    assert (node["reason"], node["reason_user"]) == ("bad [GPU] cable", "root")
    assert node["reason_time"] == "2026-07-22T23:31:17"


REASON = "set State=DOWN Gres=(null) Comment=x by hand"


def test_what_a_reason_says_of_states_is_none_of_the_node_s() -> None:
    record = " ".join(f"{SCONTROL.rstrip()} Reason={REASON} [root@2026-07-22T23:31:17]".split())
    (captured,) = nodes(f"{record}\n")
    collected = collector._node(record)
    for node in (captured, collected):
        assert (node["state"], node["gres"]) == (nodes(SCONTROL)[0]["state"], "gpu:h100:8(S:0-1)")
        assert (node["reason"], node["reason_user"], node["reason_time"]) == (REASON, "root", "2026-07-22T23:31:17")


AT = "2026-07-22T23:31:17"


@pytest.mark.parametrize(
    ("written", "reason", "user"),
    [
        (f"bad cable [root@{AT}] Comment=RMA 7, ask [jd@example.com]", "bad cable", "root"),
        (f"bad cable [jd@corp.example.com@{AT}]", "bad cable", "jd@corp.example.com"),
        (f"was [root@{AT}] noise again [jd@{AT}] Extra=y", f"was [root@{AT}] noise again", "jd"),
        (f"{'x' * 700} [root@{AT}]", "x" * 600, "root"),
        ("unset Comment=y", "unset", ""),
    ],
)
def test_a_reason_ends_with_slurms_own_stamp(written: str, reason: str, user: str) -> None:
    record = " ".join(f"{SCONTROL.rstrip()} Reason={written}".split())
    (captured,) = nodes(f"{record}\n")
    collected = collector._node(record)
    assert (collected["reason"], collected["reason_user"]) == (reason, user)
    assert captured["reason_user"] == user
    assert captured["reason"][:100] == reason[:100]


def test_what_a_record_does_not_say_is_not_read_from_its_reason() -> None:
    record = " ".join(SCONTROL.split()).replace("Partitions=", "Other=")
    (captured,) = nodes(f"{record} Reason=moved out of Partitions=old [root@{AT}]\n")
    assert "partitions" not in captured


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
    by_name = {node["name"]: SlurmNode(node) for node in nodes(text)}
    for name in ("gpu001", "gpu002"):
        assert by_name[name].why.startswith(" (Kill task failed")
        assert by_name[name].states & OUT_OF_USE


def test_a_node_without_a_reason_has_none_in_sinfos_table() -> None:
    (node,) = nodes("NODELIST STATE REASON\ngpu001 idle none\n")
    assert (node["state"], SlurmNode(node).why) == ("IDLE", "")


@pytest.mark.parametrize(
    "titles",
    [
        "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)",
        "JOBID               STATE               NODELIST",
        "NODELIST STATE EXITCODE",
        "USER ST REASON TIMESTAMP NODELIST",
        "USER STATE NODELIST",
        "NODELIST REASON",  # sinfo lists nodes without a reason there too
    ],
)
def test_a_table_of_jobs_is_none_of_nodes(titles: str) -> None:
    assert not sinfo.is_sinfo(f"{titles}\n")


WITH_REASONS = (
    "REASON               USER      TIMESTAMP           NODELIST\n"
    "Not responding       slurm     2026-01-26T15:12:23 gpu003\n"
)
WITH_STATES = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*  up  infinite  2  idle gpu[001-002]\n"
OF_JOBS = "    JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n       12 gpu 7 bob R 1:00 1 gpu009\n"
OF_PAST_JOBS = "JobID  JobName Partition  State\n------ ------- ---------- --------\n12  train gpu  FAILED\n"
LONG = (
    "Fri Jan 26 10:00:00 2026\n"
    "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST\n"
    "gpu*         up   infinite 1-infinite   no       NO        all      1    drained             gpu003\n"
    "gpu*         up   infinite 1-infinite   no       NO        all      1   reserved  of_may     gpu004\n"
    "all          up   infinite 1-infinite   no       NO        all      0         n/a\n"
)


@pytest.mark.parametrize("between", ["", "\n"])
@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ((WITH_REASONS, WITH_STATES), {"gpu003": "DOWN OR DRAINED", "gpu001": "IDLE", "gpu002": "IDLE"}),
        ((WITH_STATES, WITH_REASONS), {"gpu001": "IDLE", "gpu002": "IDLE", "gpu003": "DOWN OR DRAINED"}),
        ((WITH_REASONS.split("\n")[0] + "\n", WITH_STATES), {"gpu001": "IDLE", "gpu002": "IDLE"}),
        ((WITH_REASONS, OF_JOBS), {"gpu003": "DOWN OR DRAINED"}),
        ((WITH_REASONS, "all good on gpu001\n"), {"gpu003": "DOWN OR DRAINED"}),
        (("NODELIST STATE\ngpu001 idle\n", OF_JOBS), {"gpu001": "IDLE"}),
        (("NODELIST NODES PARTITION STATE\ngpu001 1 gpu* idle\n", OF_PAST_JOBS), {"gpu001": "IDLE"}),
        (("NODELIST NODES PARTITION STATE\ngpu001 1 gpu* idle\n", LONG),
         {"gpu001": "IDLE", "gpu003": "DRAINED", "gpu004": "RESERVED"}),
    ],
)  # fmt: skip
def test_a_table_of_sinfo_ends_where_another_begins(
    tables: tuple[str, str], expected: dict[str, str], between: str
) -> None:
    assert {node["name"]: node["state"] for node in output_of(between.join(tables))["slurm_node"]["nodes"]} == expected


def test_only_a_list_of_reasons_may_have_no_node() -> None:
    assert sinfo.read_sinfo(WITH_REASONS.split("\n")[0]) == {}
    for rows in ("", "gpu*  up  infinite  0  n/a\n"):
        with pytest.raises(CaptureError, match="sinfo lists no node"):
            sinfo.read_sinfo(WITH_STATES.split("\n")[0] + f"\n{rows}")


def test_text_behind_a_blank_line_is_no_table() -> None:
    assert [node["name"] for node in nodes("NODELIST STATE\ngpu001 idle\n\ngpu002 drained\n")] == ["gpu001"]


def test_nodes_without_a_reason_are_not_out_of_use_and_named() -> None:
    table = WITH_REASONS + "none                 Unknown   Unknown             gpu001\n"
    for text in (table, table.replace("  ", " ")):  # as -R prints it, or as a custom format
        assert [node["name"] for node in nodes(text)] == ["gpu003"]
        assert len(sinfo.unclear_rows(text)) == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("NODELIST REASON STATE\ngpu001 none idle\ngpu002 bad GPU drained\n", "REASON between other columns"),
        ("REASON STATE RESERVATION NODELIST\nit was idle drained gpu002\n", "REASON beside RESERVATION"),
        ("PARTITION STATE NODELIST\ngpu RUNNING gpu001\n", "RUNNING, which is no state of a node"),
        ("PARTITION STATE NODELIST\ngpu COMPLETING gpu001\ngpu FAILED gpu002\n", "FAILED, which is no state of a node"),
        ("NODELIST STATE REASON\nall good on gpu001\n", "GOOD, which is no state of a node"),
    ],
)
def test_a_table_whose_columns_are_not_clear_is_refused(table: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        nodes(table)


def test_a_state_that_nobody_knows_hides_no_other_node_and_says_nothing_of_its_own() -> None:
    table = "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n"
    table += "gpu* up infinite 1 down* gpu002\ngpu* up infinite 1 frobbed gpu001\nall good as of now, gpu002\n"
    assert [(node["name"], node["state"]) for node in nodes(table)] == [("gpu002", "DOWN*")]


@pytest.mark.parametrize(
    "state", ["mix-", "alloc+", "idle~", "boot^", "drng@", "plnd", "comp", "pow_dn", "idle+planned"]
)
def test_states_of_nodes_are_known_with_each_of_slurms_signs(state: str) -> None:
    (node,) = nodes(f"NODELIST STATE\ngpu001 {state}\n")
    assert node["state"] == state.rstrip("-+~^@").upper()


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
    listed = SlurmNodes({"nodes": [{"name": "gpu007", "host": "gpu007", "state": "DOWN"}]})
    assert listed.named("node").state == "DOWN"  # a one-file capture has no name
    with pytest.raises(Incomplete, match="is not among them"):
        listed.named("gpu001", "gpu001")
