"""Verdicts on the host that no fault in one node causes: large clusters, needs of a type, unread values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.evaluated import result_of, verdict_of
from tests.builders.recordings import node

PLENTY = {"memlock": None, "nofile": 1048576, "nproc": None}
EC2 = {"vendor": "Amazon EC2", "product": "p5.48xlarge"}
TWO_SOCKETS = [{"node": node, "memory_kib": 2**30, "cpus": str(node)} for node in range(2)]
UNREAD = {"error": "EIO", "text": ""}
GPU = {"class": "030200", "vendor": "10de", "address": "0000:53:00.0", "numa": 0}
SEGMENTS = {"nccl_shm": {"count": 2, "kib": 2048, "oldest_s": 60.0}}


@pytest.mark.parametrize(
    ("count", "limits", "verdict"),
    [
        (256, {**PLENTY, "stack": None}, Verdict.CONCERN),
        (255, {**PLENTY, "stack": None}, Verdict.PASS),
        (256, {**PLENTY, "stack": 8388608}, Verdict.PASS),
        (256, {**PLENTY, "stack": None, "memlock": 2**34}, Verdict.CONCERN),  # memlock has no part in it
    ],
)
def test_unlimited_stacks_worry_where_jobs_can_be_very_large(
    count: int, limits: Mapping[str, int | None], verdict: Verdict
) -> None:
    result = verdict_of("host.ulimits", count, limits={"login": limits, "daemons": {}})
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize(
    ("slurmd", "verdict"),
    [
        ({"error": "EACCES", "text": ""}, Verdict.INCOMPLETE),
        ({"memlock": None}, Verdict.INCOMPLETE),
        ({"stack": 4096}, Verdict.FAIL),  # a fault that is seen outranks a value that is not read
        ({**PLENTY, "stack": 8388608}, Verdict.PASS),
    ],
)
def test_limits_of_a_daemon_that_may_not_be_read_are_no_pass(slurmd: Mapping[str, Any], verdict: Verdict) -> None:
    limits = {"login": {**PLENTY, "stack": 8388608}, "daemons": {"slurmd": slurmd}}
    assert verdict_of("host.ulimits", limits=limits).verdict is verdict


@pytest.mark.parametrize(
    ("product", "balancing", "count", "verdict"),
    [
        ("p6e-gb200.36xlarge", "1", 1, Verdict.CONCERN),
        ("p6e-gb200.36xlarge", "0", 1, Verdict.PASS),
        ("p5.48xlarge", "1", 1, Verdict.NOT_APPLICABLE),  # nothing to compare with
        ("p5.48xlarge", "1", 3, Verdict.PASS),
        ("nobody-knows.it", "1", 3, Verdict.PASS),
        ("p5.48xlarge", "", 3, Verdict.NOT_APPLICABLE),
    ],
)
def test_numa_balancing_is_as_the_type_wants_it_or_as_the_group_has_it(
    product: str, balancing: str, count: int, verdict: Verdict
) -> None:
    memory = {"numa": TWO_SOCKETS, "numa_balancing": balancing}
    result = verdict_of("host.numa_balancing", count, memory=memory, platform={**EC2, "product": product})
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        ([{"index": 0, "processes": [{"pid": 7, "memory_mib": 900, "name": "python3", "cgroup": ""}]}], Verdict.PASS),
        ([{"index": 0, "processes": []}], Verdict.CONCERN),
        ([{"index": 0, "processes": {"error": "NO_PERMISSION", "text": ""}}], Verdict.INCOMPLETE),
    ],
)
def test_segments_are_left_over_only_where_no_process_computes(gpus: list[Any], verdict: Verdict) -> None:
    nvml = {"init": None, "driver": "580.126.09", "count": len(gpus), "gpus": [{"lost": None, **gpu} for gpu in gpus]}
    result = verdict_of("host.shm_leftovers", memory=SEGMENTS, nvml=nvml, platform=EC2, pci={"devices": [GPU]})
    assert result.verdict is verdict, result.message


def test_segments_are_left_over_however_little_is_known_of_them() -> None:
    nvml = {"init": {"error": "DRIVER_NOT_LOADED", "text": ""}}
    collectors: dict[str, Any] = {"nvml": nvml, "platform": EC2, "pci": {"devices": []}}
    result = verdict_of("host.shm_leftovers", memory={"nccl_shm": {"count": 99}}, **collectors)
    assert "concern: 99 NCCL segments, but no process is known to use a GPU; expected none" in result.message


@pytest.mark.parametrize("processes", [[], {"error": "NO_PERMISSION", "text": ""}])
def test_segments_are_not_called_unused_where_the_processes_of_a_gpu_are_unread(processes: Any) -> None:
    gpus = [{"index": 0, "lost": None, "processes": []}, {"index": 1, "lost": None, "processes": processes}]
    nvml = {"init": None, "driver": "580.126.09", "count": 2, "gpus": gpus}
    result = verdict_of("host.shm_leftovers", memory=SEGMENTS, nvml=nvml, platform=EC2, pci={"devices": [GPU]})
    assert ("but no process uses a GPU" in result.message) is (processes == [])
    assert ("but no process is known to use a GPU" in result.message) is (processes != [])


def test_swap_is_seen_though_it_is_unknown_how_much_of_it_is_in_use() -> None:
    result = verdict_of("host.swap", memory={"swap_total_kib": 64 * 2**20})
    assert result.verdict is Verdict.INCOMPLETE
    assert "concern: 64 GiB of swap; expected none" in result.message


def test_huge_pages_that_one_of_two_nodes_reserves_are_named() -> None:
    large = {"size_kib": 2**20, "pages": 16, "free": 0}
    nodes = [{"total_kib": 2**31, "huge_pages": pages} for pages in ([large], [], [])]
    result = result_of("host.hugepages", *(node(f"n{at}", memory=memory) for at, memory in enumerate(nodes)))
    assert result.verdict is Verdict.CONCERN
    assert result.message == "huge pages of 1024 MiB some; expected none as on 2 of 3 nodes"


@pytest.mark.parametrize("unread", ["size_kib", "pages"])
def test_huge_pages_are_judged_beside_some_of_which_a_value_is_unread(unread: str) -> None:
    large, small = {"size_kib": 2**20, "pages": 16, "free": 0}, {"size_kib": 2**21, "pages": 1, "free": 0}
    own, *others = (
        {"total_kib": 2**31, "huge_pages": [{**small, unread: UNREAD}, *pages]} for pages in ([large], [], [])
    )
    nodes = [node(f"n{at}", memory=memory) for at, memory in enumerate((own, *others))]
    assert "huge pages of 1024 MiB some; expected none" in result_of("host.hugepages", *nodes).message


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        (
            [{"size_kib": 2048, "pages": 0}, {"size_kib": UNREAD, "pages": 9}],
            "concern: 0 huge pages of 2 MiB; expected",
        ),
        ([{"size_kib": UNREAD, "pages": 9}], "size_kib could not be read"),
    ],
)
def test_pages_for_efa_are_counted_beside_some_of_unread_size(pages: list[Any], message: str) -> None:
    rdma = {"devices": [{"vendor": "1d0f", "device": "efa2"}]}
    result = verdict_of("host.efa_huge_pages", memory={"huge_pages": pages}, rdma=rdma)
    assert (result.verdict, message in result.message) == (Verdict.INCOMPLETE, True), result.message
    assert ("expected at least" in result.message) is (len(pages) > 1)


def test_segments_on_a_node_without_gpus_are_left_over() -> None:
    platform = {"vendor": "Amazon EC2", "product": "nobody-knows.it"}
    nvml = {"init": {"error": "DRIVER_NOT_LOADED", "text": ""}}
    result = verdict_of("host.shm_leftovers", memory=SEGMENTS, nvml=nvml, platform=platform, pci={"devices": []})
    assert result.verdict is Verdict.CONCERN, result.message


@pytest.mark.parametrize("check", ["host.memory_size", "host.cpus_online"])
def test_outside_ec2_nothing_says_how_much_there_should_be(check: str) -> None:
    cpus = {"online": "0-63", "present": "0-63", "smt": "on", "info": {"cores": 32}}
    platform = {"vendor": "Supermicro", "product": "SYS-821GE"}
    assert (
        verdict_of(check, cpus=cpus, memory={"total_kib": 2**31}, platform=platform).verdict is Verdict.NOT_APPLICABLE
    )


def test_a_cpu_that_is_offline_fails_also_outside_ec2() -> None:
    cpus = {"online": "0-62", "present": "0-63", "smt": "on", "info": {"cores": 32}, "machine": "x86_64"}
    result = verdict_of("host.cpus_online", cpus=cpus, platform={"vendor": "Supermicro", "product": ""})
    assert (result.verdict, result.message) == (Verdict.FAIL, "CPUs 63 are offline; expected all 64 online")


def test_cpus_that_are_offline_are_named_though_it_is_unknown_whether_smt_is_off() -> None:
    cpus = {"online": "0-62", "present": "0-63", "smt": None, "info": {"cores": 32}, "machine": "x86_64"}
    result = verdict_of("host.cpus_online", cpus=cpus, platform=EC2)
    assert "concern: CPUs 63 are offline; expected all 64 online" in result.message


def test_one_thread_per_core_leaves_half_of_the_cpus() -> None:
    cpus = {"online": "0-95", "present": "0-95", "smt": "notsupported", "info": {"cores": 96}, "machine": "x86_64"}
    assert verdict_of("host.cpus_online", cpus=cpus, platform=EC2).verdict is Verdict.PASS
    assert verdict_of("host.thread_siblings", cpus=cpus, platform=EC2).verdict is Verdict.CONCERN
    nobody_knows = {"vendor": "", "product": "", "serial": ""}  # another kind of machine may well have one
    assert verdict_of("host.thread_siblings", cpus=cpus, platform=nobody_knows).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    "instance_type", ["m7a.2xlarge", "c8a.4xlarge", "r7a.metal-48xl", "hpc7a.96xlarge", "t2.large"]
)
def test_a_type_whose_cores_have_one_thread_may_have_one(instance_type: str) -> None:
    cpus = {"online": "0-7", "present": "0-7", "smt": "notsupported", "info": {"cores": 8}, "machine": "x86_64"}
    result = verdict_of("host.thread_siblings", cpus=cpus, platform={**EC2, "product": instance_type})
    assert (result.verdict, result.message) == (
        Verdict.NOT_APPLICABLE,
        f"{instance_type} always has one thread per core",
    )


GIB = 2**20  # KiB


def busy(iowait: int = 0, steal: int = 0) -> dict[str, Any]:
    """The processors' times between two samples, per thousand ticks."""
    return {"times": [[0] * 8, [0, 0, 0, 1000 - iowait - steal, iowait, 0, 0, steal]]}


@pytest.mark.parametrize(
    ("check", "collectors", "message"),
    [
        ("host.iowait", {"cpus": busy(iowait=203)}, "20.3 % of CPU time waits for I/O; expected at most 20 %"),
        ("host.cpu_steal", {"cpus": busy(steal=21)}, "2.1 % of CPU time is stolen; expected at most 2 %"),
        (
            "host.memory_available",
            {"memory": {"total_kib": 1000 * GIB, "available_kib": 198 * GIB}},
            "19.8 % of 1000 GiB available; expected at least 20 %",
        ),
        (
            "host.memory_size",
            {"memory": {"total_kib": 2048 * GIB * 95 // 100 - GIB // 12}, "platform": EC2},
            "1945.5 GiB; expected at least 1945.6 of the 2048 GiB that p5.48xlarge has",
        ),
    ],
)
def test_a_value_that_is_just_over_a_limit_does_not_look_like_it(
    check: str, collectors: dict[str, Any], message: str
) -> None:
    result = verdict_of(check, **collectors)
    assert (result.verdict in (Verdict.FAIL, Verdict.CONCERN), result.message) == (True, message)


ARCSTATS = f"""13 1 0x01 147 39984 5216013262 1234567890
name                            type data
hits                            4    123456
c_min                           4    {40 * GIB * 1024}
size                            4    {{size}}
mru_size                        4    77
"""


@pytest.mark.parametrize(
    ("arcstats", "verdict"),
    [
        (ARCSTATS.format(size=340 * GIB * 1024), Verdict.PASS),
        (ARCSTATS.format(size=90 * GIB * 1024), Verdict.CONCERN),
        (ARCSTATS.format(size=10 * GIB * 1024), Verdict.FAIL),  # less than it keeps
        (ARCSTATS.partition("size")[0], Verdict.FAIL),
        ("", Verdict.FAIL),
        (None, Verdict.FAIL),
    ],
)
def test_memory_that_zfs_caches_is_available_but_for_what_it_keeps(arcstats: str | None, verdict: Verdict) -> None:
    memory = {"total_kib": 1000 * GIB, "available_kib": 20 * GIB, "arcstats": arcstats}
    assert verdict_of("host.memory_available", memory=memory).verdict is verdict


def test_a_node_with_a_little_less_memory_than_its_group_does_not_look_like_it() -> None:
    totals = {"odd": 24 * GIB * 99 // 100 - 100, "a": 24 * GIB, "b": 24 * GIB, "c": 24 * GIB}
    evidence = {
        name: NodeEvidence(name, {"memory": Collected(Status.READ, {"total_kib": kib})}) for name, kib in totals.items()
    }
    cluster = Cluster("alike", "local", tuple(map(Target, totals)))
    result = evaluate(node_checks()["host.memory_uniform"], nodes(cluster, evidence)["odd"])
    assert result.message == "23.8 GiB; expected 24 GiB, as on 3 of 4 nodes"


HOST_CHECKS = sorted(name for name in node_checks() if name.startswith("host."))
ASKED_FOR = ("host.stress_ng",)  # run only if an option asks for it


@pytest.mark.parametrize("check", HOST_CHECKS)
def test_a_node_that_reports_nothing_about_its_host_passes_no_check_of_it(check: str) -> None:
    due = Verdict.NOT_APPLICABLE if check in ASKED_FOR else Verdict.INCOMPLETE
    assert verdict_of(check, 3).verdict is due


@pytest.mark.parametrize(
    ("own", "others", "message"),
    [
        ("AABB", [], "firmware of PM1733 A on nvme0, nvme1 and B on nvme2, nvme3; expected one version"),
        ("AB", [], ""),  # the disks of a mirror need not be alike
        ("AABB", ["AABB"] * 3, ""),
        ("AABB", ["AAAA"] * 3, "firmware of PM1733 A and B; expected A as on 3 of 4 nodes"),
        ("AAAB", ["BBBB"] * 3, "firmware of PM1733 A; expected B as on 3 of 4 nodes"),
        ("AAAB", ["AAAA"] * 3, "firmware of PM1733 B on nvme3; expected A, as on 3 others of the node"),
    ],
)
def test_disks_of_a_node_have_one_firmware(own: str, others: list[str], message: str) -> None:
    of_disks = [
        [{"name": f"nvme{at}", "model": "PM1733", "firmware": version} for at, version in enumerate(versions)]
        for versions in (own, *others)
    ]
    nvml = {"init": None, "driver": "580.126.09", "count": 1, "gpus": [{"index": 0, "lost": None, "inforom": None}]}
    reports = [{"platform": EC2, "nvml": nvml, "nvme": {"controllers": disks}} for disks in of_disks]
    result = result_of("host.firmware_uniform", *(node(f"n{at}", **report) for at, report in enumerate(reports)))
    assert result.message == message or not (message or result.verdict.is_finding)
