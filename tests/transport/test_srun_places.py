"""Which nodes share one srun, what it requests, and which nodes it leaves out."""

from __future__ import annotations

import pytest

from clusterproof.plugins.transport.srun.call import command_line
from clusterproof.plugins.transport.srun.places import CONSTRAINS, Launch, NodeAnswer, is_usable, nodes_of, plan
from tests.transport.launch_request import REQUEST

NODE = (
    "NodeName={name} CPUAlloc={used} CPUEfctv=4 CPUTot=4 Gres={gres} RealMemory={memory} State={state} "
    "Partitions={partitions}"
)


def record(
    name: str, state: str = "IDLE", used: int = 0, gres: str = "gpu:8", memory: int = 1, partitions: str = "gpu"
) -> dict[str, dict[str, str]]:
    """A node as scontrol shows it."""
    line = NODE.format(name=name, state=state, used=used, gres=gres, memory=memory, partitions=partitions)
    return nodes_of(f"{line} Reason=the fan is loud [root@2026]\n" if "DRAIN" in state else line)


def planned(
    records: dict[str, dict[str, str]],
    jobs: dict[str, str] | None = None,
    constrains: bool = False,
    partition: str = "",
) -> tuple[list[Launch], dict[str, NodeAnswer]]:
    return plan(list(records), records, jobs or {}, constrains, partition)


def test_nodes_that_are_alike_go_together() -> None:
    launches, refused = planned({**record("a"), **record("b", "MIXED", used=2)})
    assert [launch["nodes"] for launch in launches] == [["a", "b"]]
    assert refused == {}


def test_nodes_of_two_partitions_go_apart_unless_one_has_both() -> None:
    records = {**record("a", partitions="gpu"), **record("b", partitions="cpu,gpu")}
    assert [launch["partition"] for launch in planned(records)[0]] == ["gpu", "cpu"]
    assert [launch["partition"] for launch in planned(records, partition="gpu")[0]] == ["gpu"]


def test_gpus_are_asked_for_only_where_a_cgroup_hides_them_and_the_node_is_idle() -> None:
    records = {**record("a", gres="gpu:h100:8(S:0-1)"), **record("b", "MIXED", used=1), **record("c", gres="(null)")}
    assert {launch["gpus"] for launch in planned(records)[0]} == {""}
    nodes_by_gpus = {launch["gpus"]: launch["nodes"] for launch in planned(records, constrains=True)[0]}
    assert nodes_by_gpus == {"8": ["a"], "": ["b", "c"]}


def test_all_gpus_of_a_node_are_asked_for_of_whatever_type() -> None:
    records = {
        **record("a", gres="gpu:h100:4(S:0,1),gpu:l40s:2(S:2)"),
        **record("b", gres="gpu:3g.40gb:2,gpu:1g.10gb:7"),
    }
    asked_for = {launch["nodes"][0]: launch["gpus"] for launch in planned(records, constrains=True)[0]}
    assert asked_for == {"a": "6", "b": "9"}


def test_memory_is_asked_for_only_where_nodes_are_configured_with_it() -> None:
    records = {**record("a", memory=2_000_000), **record("b")}
    assert [launch["memory"] for launch in planned(records)[0]] == [True, False]


def test_a_node_with_a_job_of_ones_own_is_visited_inside_it() -> None:
    launches, _ = planned({**record("a", "ALLOCATED", used=4), **record("b")}, jobs={"a": "17"})
    assert [(launch["job"], launch["nodes"]) for launch in launches] == [("17", ["a"]), ("", ["b"])]
    command = command_line(launches[0], REQUEST)
    assert {"--jobid=17", "--overlap"} <= set(command)
    assert not [word for word in command if word.startswith(("--time", "--partition", "--gres"))]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("IDLE+DRAIN", "drained"),
        ("MIXED+DRAIN", "drained"),
        ("DOWN", "down"),
        ("DOWN*+DRAIN", "down"),
        ("IDLE*", "down"),
        ("IDLE+CLOUD+POWERED_DOWN", "down"),
        ("IDLE+CLOUD+POWER", "down"),  # powered down, in Slurm 20.11
    ],
)
def test_a_node_that_takes_no_jobs_is_refused_with_slurms_word(state: str, why: str) -> None:
    launches, refused = planned(record("a", state))
    assert launches == []
    assert refused["a"]["why"] == why
    assert refused["a"]["detail"].startswith(f"Slurm reports it as {state}")


def test_a_node_that_slurm_does_not_know_is_refused() -> None:
    assert plan(["a"], {}, {}, False, "")[1]["a"] == {"why": "unknown", "detail": "Slurm knows no node a"}


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+CLOUD", "IDLE+COMPLETING", "MIXED+PLANNED"])
def test_states_in_which_jobs_start(state: str) -> None:
    assert is_usable({"State": state})


@pytest.mark.parametrize(
    ("data", "constrains"),
    [("ConstrainDevices        = yes", True), ("ConstrainDevices        = no", False), ("", False)],
)
def test_whether_cgroups_hide_devices_is_read_from_the_configuration(data: str, constrains: bool) -> None:
    assert bool(CONSTRAINS.search(f"AccountingStoreFlags = (null)\n{data}\nKillWait = 30 sec\n")) is constrains
