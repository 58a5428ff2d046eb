"""The catalogue's numbers: complete, with sources, and consistent with the suite's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.catalog import (
    PACKAGED,
    Catalog,
    CatalogError,
    InstanceType,
    instance_types,
    owner,
    owners,
    thresholds,
    xid,
    xids,
)
from clusterproof.plugins.catalog.rows import FOLDER, document
from clusterproof.plugins.evaluation.all_checks import all_checks

FILES = sorted(file.name for file in Path(FOLDER).glob("*.toml"))
FAIL = {46, 48, 54, 62, 64, 74, 79, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 167, 168, 169, 173, 175}
APPLICATION = {8, 11, 25, 32, 43, 45, 69, 80, 137}
ENGINE = {
    *(39, 40, 41, 60, 68, 70, 71, 72, 75, 76, 77, 82, 83, 84, 85, 86, 88, 89),
    *range(96, 106), *range(126, 136), *(139, 142),
}  # fmt: skip
RULE = {
    **dict.fromkeys(FAIL, "fail"),
    **dict.fromkeys(APPLICATION | ENGINE, "none"),
    **dict.fromkeys((13, 31), "repeat-concern"),
    **dict.fromkeys((92, 109, 121), "repeat-fail"),
    **dict.fromkeys(range(144, 151), "by-severity"),
    63: "by-remap",
    177: "by-remap",
    94: "by-reset",
    95: "unless-no-reset",
    154: "by-text",
    162: "none",
    163: "concern",
}
OTHERS = {
    *(37, 38, 44, 61, 65, 66, 67, 78, 81, 93, 106, 107, 123, 141, 152, 153, 157, 159, 160, 161),
    *(164, 165, 166, 170, 171, 172, 174, 176),
    *(18, 57, 58, 73, 122, 124, 125),
    *(1, 2, 3, 4, 6, 7, 9, 12, 16, 19, 20, 21, 22, 24, 26, 27, 28, 29, 30, 33, 34, 35, 36, 42, 47, 56, 59),
    *range(111, 119),
}  # fmt: skip
# Type: GPUs, NVLinks per GPU, fabric manager on the node, EFA devices, rate of one in Gb/s.
TYPES: Mapping[str, tuple[object, ...]] = {
    "p3dn.24xlarge": (8, 6, False, 1, 100),
    "p4d.24xlarge": (8, 12, True, 4, 100),
    "p4de.24xlarge": (8, 12, True, 4, 100),
    "p5.4xlarge": (1, None, None, 1, 100),
    "p5.48xlarge": (8, 18, True, 32, 100),
    "p5e.48xlarge": (8, 18, True, 32, 100),
    "p5en.48xlarge": (8, 18, True, 16, 200),
    "p6-b200.48xlarge": (8, 18, True, 8, 400),
    "p6-b300.48xlarge": (8, 18, True, 16, 400),
    "p6e-gb200.36xlarge": (4, 18, False, 16, None),
    "p6e-gb300r.36xlarge": (4, 18, False, 2, None),
    "trn1.32xlarge": (0, 0, False, 8, 100),
    "trn1n.32xlarge": (0, 0, False, 16, 100),
    "trn2.48xlarge": (0, 0, False, 16, 200),
    "g4dn.metal": (8, 0, False, 1, 100),
    "g5.48xlarge": (8, 0, False, 1, 100),
    "g6.12xlarge": (4, 0, False, 1, 40),
    "g6e.48xlarge": (8, 0, False, 4, 100),
    "g7e.48xlarge": (8, 0, False, 4, None),
    "gr6.8xlarge": (1, 0, False, 1, 25),
}


@pytest.mark.parametrize("file", FILES)
def test_every_file_explains_every_source_that_its_rows_name_and_no_other(file: str) -> None:
    tables = document(file)
    rows = {name: table for name, table in tables.items() if name not in ("sources", "disagreement")}
    named = set(re.findall(r"'source': '([^']*)'", str(rows)))
    used = {short for source in named for short in source.split()}
    assert used | {"policy"} == set(tables["sources"]) | {"policy"}


@pytest.mark.parametrize(("code", "verdict"), sorted(RULE.items()))
def test_an_xid_has_the_verdict_of_the_rules(code: int, verdict: str) -> None:
    assert xid(code).verdict == verdict


def test_every_known_xid_is_in_the_catalogue_once_and_no_unnamed_one_fails() -> None:
    assert set(xids()) == set(RULE) | OTHERS
    assert {xid(code).verdict for code in OTHERS} == {"none", "concern"}
    assert all(row.name and row.action for row in xids().values())


@pytest.mark.parametrize(
    ("code", "name"),
    [(9, "Driver error programming GPU"), (26, "Framebuffer timeout"), (59, "Internal micro-controller error")],
)
def test_an_xid_that_only_older_drivers_name_has_that_name(code: int, name: str) -> None:
    assert xid(code).name.startswith(name)
    assert (xid(code).verdict, xid(code).source) == ("concern", "nvidia-555")


def test_an_xid_that_nobody_knows_is_a_concern() -> None:
    assert (xid(999).code, xid(999).verdict, xid(999).kind) == (999, "concern", "unknown")


@pytest.mark.parametrize("code", [13, 31, 45, 63, 64, 73, 74, 79, 92, 94, 95, 109, 119, 121, 140, 159])
def test_where_sources_disagree_the_row_says_so(code: int) -> None:
    assert xid(code).disagreement


def test_only_162_ends_another_code() -> None:
    assert {row.code: row.clears for row in xids().values() if row.clears} == {162: (163,)}


@pytest.mark.parametrize(("name", "expected"), TYPES.items())
def test_an_instance_type_has_what_is_known_of_it(name: str, expected: tuple[object, ...]) -> None:
    row = PACKAGED.instance_type(name)
    assert row is not None
    assert (row.gpus, row.nvlinks_per_gpu, row.nvswitch, row.efa, row.efa_gbps) == expected


@pytest.mark.parametrize("row", instance_types().values(), ids=lambda row: row.name)
def test_the_numbers_of_an_instance_type_agree_with_each_other(row: InstanceType) -> None:
    assert row.gpus or row.neuron_devices
    assert (row.gpu_model is None) == (row.gpus == 0)
    if row.efa and row.efa_gbps and row.network_gbps:
        assert row.efa * row.efa_gbps == row.network_gbps
    if row.nvswitch:
        assert row.nvlinks_per_gpu


def test_a_sagemaker_name_is_the_same_type_and_an_unknown_one_is_none() -> None:
    assert PACKAGED.instance_type("ml.p5.48xlarge") is PACKAGED.instance_type("p5.48xlarge") is not None
    assert PACKAGED.instance_type("p6e.48xlarge") is None
    assert PACKAGED.instance_type("") is None


@pytest.mark.parametrize(
    ("name", "is_made_for_efa"),
    [
        ("p5.48xlarge", True),
        ("p5.4xlarge", False),
        ("trn1.32xlarge", True),
        ("trn2.3xlarge", False),  # Neuron devices and no RDMA
        ("g7e.48xlarge", False),  # RDMA without access to GPU memory
        ("g5.48xlarge", False),
    ],
)
def test_a_type_is_made_for_efa_where_it_reaches_the_memory_of_its_devices(name: str, is_made_for_efa: bool) -> None:
    row = PACKAGED.instance_type(name)
    assert row is not None
    assert row.is_made_for_efa is is_made_for_efa


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("p5.48xlarge", 8),
        ("trn1.32xlarge", 16),
        ("DGX H100", 8),
        ("m7i.large", 0),
        ("p99.large", None),  # other types of its family are in the catalogue
        ("ml.trn9.large", None),
        ("own.none", 0),
        ("own.unknown", None),
    ],
)
def test_how_many_accelerators_a_type_has_is_known_or_is_none(name: str, count: int | None) -> None:
    own = {"own.none": InstanceType("own.none", "site", gpus=0), "own.unknown": InstanceType("own.unknown", "site")}
    assert Catalog(instance_types=own).accelerators(name) == count


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("settle.window_s", 180),
        ("memlock.minimum_gib", 16),
        ("shm.minimum_gib", 16),
        ("shm.minimum_percent_of_memory", 25),
        ("shm.used_concern_percent", 80),
        ("root.used_fail_percent", 90),
        ("root.used_concern_percent", 80),
        ("processes.d_state_fail_s", 60),
        ("processes.zombies_concern", 1000),
        ("driver.init_concern_s", 5),
        ("xid.repeat_count", 2),
        ("xid.repeat_window_s", 24 * 3600),
        ("configuration.suspected_share", 0.5),
        ("configuration.suspected_minimum_nodes", 4),
    ],
)
def test_a_threshold_is_the_rules_number_with_its_unit(name: str, value: float) -> None:
    assert PACKAGED.threshold(name) == value
    assert thresholds()[name].unit


def test_a_threshold_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(CatalogError, match=r"thresholds\.toml has no 'shm\.minimum' \(did you mean shm\.minimum_gib"):
        PACKAGED.threshold("shm.minimum")


def test_every_owner_skill_has_a_row() -> None:
    assert {row.name for row in owners().values()} == {
        "hyperpod-node-debugger",
        "hyperpod-nccl",
        "hyperpod-version-checker",
        "hyperpod-cluster-debugger",
        "hyperpod-slurm-debugger",
        "hyperpod-performance-debugger",
        "hyperpod-issue-report",
        "hyperpod-ssm",
    }
    debugger = owner("hyperpod_node_debugger")
    assert debugger is not None
    assert {"A", "G", "I", "I.2", "K"} <= set(debugger.sections)
    assert owner("hyperpod") is None


def test_a_check_is_routed_to_a_section_that_its_skill_has() -> None:
    routes = [check.route for check in all_checks().values() if check.route.section]
    rows = {row.name: row for row in owners().values()}
    assert {route.check: route.section for route in routes if route.section not in rows[route.owner].sections} == {}


@pytest.mark.parametrize(
    ("check", "team"),
    [
        ("gpu.no_xid", "hardware"),
        ("gpu.persistence_mode", "image"),  # a setting is no hardware fault
        ("gpu.gpu_exact", "hardware"),
        ("host.memory_size", "hardware"),
        ("host.memory_uniform", "hardware"),
        ("host.clock_sync", "image"),
        ("host.cpu_governor", "image"),
        ("host.job_leftovers", "job"),
        ("network.nccl_correct", "hardware"),  # wrong sums, as gpu.exact_collective
        ("network.pairwise_correct", "hardware"),
        ("run.comm_exposed", "job"),  # overlap is code
        ("run.data_wait", "job"),
        ("run.held_up", "job"),  # garbage collection, limits of a container
        ("run.init_time", "job"),
        ("run.slow_clock", "hardware"),
        ("storage.mounts_writable", "storage"),
    ],
)
def test_a_finding_is_of_whoever_can_mend_it(check: str, team: str) -> None:
    assert all_checks()[check].route.team == team


def test_only_checks_have_a_team_of_their_own() -> None:
    assert document("owners.toml")["teams"]["by_check"].keys() <= all_checks().keys()
