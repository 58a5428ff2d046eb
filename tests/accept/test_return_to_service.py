"""`clusterproof return X NODES`: an earlier finding counts as gone only once a check has seen that it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.accept import return_to_service
from clusterproof.plugins.accept.earlier import EarlierFinding
from clusterproof.plugins.accept.return_to_service import (
    FIT,
    NOT_FIT,
    NOT_PROVEN,
    judge,
    return_command,
    return_nodes,
)
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.store import default_path, write_run
from tests.accept.returned import CLUSTER, LOADED, MEASUREMENT, TYPED, WELL, Launched, result
from tests.testbed.cluster import testbed
from tests.testbed.faults import with_nvml
from tests.testbed.load import gpu_node
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5

PASS, FAIL, CONCERN, INCOMPLETE, NONE = (
    Verdict.PASS,
    Verdict.FAIL,
    Verdict.CONCERN,
    Verdict.INCOMPLETE,
    Verdict.NOT_APPLICABLE,
)
ECC = EarlierFinding(("gpu.no_uncorrected_ecc",), "the history")
XID = EarlierFinding(("no_xid", "gpu_count"), "the case of 4711")
PAIRS = EarlierFinding(("pairwise_busbw",), "the case of 4711")
LIMIT_S = 600.0
KEYWORDS = "exact or dcgm or gpu_bandwidth or gpu_gemm or node_busbw or fs_bandwidth or nccom or efa_loopback"


@pytest.mark.parametrize(
    ("expected", "found", "checked", "loaded", "reason"),
    [
        (FIT, (), WELL, LOADED, ""),
        (FIT, (ECC, XID), WELL, LOADED, ""),
        (FIT, (), (*WELL, result("host.thp", CONCERN)), LOADED, ""),
        (NOT_FIT, (), (*WELL, result("host.memlock", FAIL)), LOADED, "host.memlock: 2; expected 0"),
        (NOT_FIT, (), WELL, (result("gpu.gpu_exact", FAIL),), "gpu.gpu_exact: 2"),
        (NOT_PROVEN, (), (*WELL, result("host.memlock", INCOMPLETE)), LOADED, "host.memlock: 2"),
        (NOT_PROVEN, (), (), LOADED, "the checks told nothing of it"),
        (NOT_PROVEN, (), WELL, (), "the load told nothing of it"),
        (NOT_PROVEN, (), WELL, (result("gpu.gpu_exact", NONE),), "the load told nothing of it"),
        (NOT_PROVEN, (), WELL, (result("gpu.gpu_exact", PASS, "n2"),), "the load told nothing of it"),
        (
            NOT_PROVEN,
            (ECC,),
            (result("gpu.no_xid", PASS),),
            LOADED,
            "gpu.no_uncorrected_ecc: the history has it, and no",
        ),
        (
            NOT_PROVEN,
            (ECC,),
            (result("gpu.no_uncorrected_ecc", NONE),),
            LOADED,
            "the history has it, and no check told",
        ),
        (NOT_PROVEN, (ECC,), (result("gpu.no_uncorrected_ecc", PASS, "n2"),), LOADED, "no check told"),
        (NOT_PROVEN, (ECC,), (result("gpu.no_uncorrected_ecc", CONCERN),), LOADED, "it is still a concern"),
        (NOT_PROVEN, (PAIRS,), WELL, LOADED, "pairwise_busbw: the case of 4711 has it, and no check told"),
    ],
)
def test_a_node_is_fit_only_with_all_evidence_and_with_what_was_found_before_seen_to_be_gone(
    expected: str, found: Sequence[EarlierFinding], checked: Sequence[Result], loaded: Sequence[Result], reason: str
) -> None:
    judged = judge("n1", found, [checked, loaded], 2)
    assert (judged.said, reason in " ".join(judged.reasons), bool(judged.reasons)) == (expected, True, bool(reason))


def test_pairs_of_the_node_tell_whether_what_was_found_between_nodes_is_gone() -> None:
    pair = result("network.pairwise_busbw", PASS, "n1~n2", subject="pair")
    others = replace(pair, node="n2~n3", verdict=FAIL, message="slow; expected not")
    assert judge("n1", (PAIRS,), [WELL, LOADED, (pair, others)], 3).said == FIT
    assert judge("n1", (PAIRS,), [WELL, LOADED, (replace(pair, verdict=FAIL),)], 3).said == NOT_FIT
    assert judge("n1", (), [WELL, LOADED, (others,)], 3).reasons == (f"the pairs told nothing of it; {MEASUREMENT}",)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_node_that_failed_bears_no_load_and_the_steps_are_checks_of_their_own() -> None:
    launched = Launched({("gpu002", "gpu.no_xid"): FAIL})
    code, text = return_nodes([CLUSTER, "gpu[002-003]", "--beside", "gpu001,gpu004", "--sudo"], launched)
    assert code == 1
    assert launched.typed == [
        ["check", CLUSTER, "--nodes=gpu[001-004]", "--sudo"],
        ["check", CLUSTER, "--nodes=gpu[001,003-004]", "--sudo", "-m", "perf", "-k", KEYWORDS],
        ["check", CLUSTER, "--nodes=gpu[001,003-004]", "--sudo", "-m", "perf", "-k", "pairwise or straggler"],
    ]
    assert "NOT FIT     gpu002\n            gpu.no_xid: 2; expected 0\n" in text
    assert "FIT         gpu003\n" in text
    assert text.endswith("1 of 2 nodes may have jobs again\n")


@pytest.mark.parametrize("is_named", [True, False])
def test_options_that_say_where_the_nodes_are_hold_for_the_nodes_named_too(
    is_named: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def resolved(text: str, options: dict[str, str]) -> Cluster:
        seen.append(options)
        return resolve(text)

    monkeypatch.setattr(return_to_service, "resolve", resolved)
    options = ["--include-drained", "--via=ssh:login1", "--region", "eu-west-1", "--sudo"] if is_named else ["--sudo"]
    assert return_nodes([CLUSTER, "gpu001", *options], Launched())[0] == 0
    given = {"region": "eu-west-1", "via": "ssh:login1", "include_drained": "yes"}
    assert seen == [given if is_named else {}]


def test_a_site_says_itself_what_loads_a_node() -> None:
    launched = Launched()
    assert return_nodes([CLUSTER, "gpu001", "--load", "gpu_exact"], launched)[0] == 0
    assert launched.typed[1] == ["check", CLUSTER, "--nodes=gpu001", "-m", "perf", "-k", "gpu_exact"]


def test_what_failed_in_the_history_and_what_a_case_suspects_has_to_be_seen_to_be_gone(here: Path) -> None:
    name = resolve(CLUSTER).name
    path = default_path(name)
    path.parent.mkdir(parents=True, mode=0o700)
    write_run(
        path,
        PastRun(name, 1.0, 2.0),
        [
            result("storage.mounts", FAIL, "gpu002"),
            result("host.thp", CONCERN, "gpu002"),
            result("network.pairwise_busbw", FAIL, "gpu001~gpu002", subject="pair"),
        ],
    )
    case = {"case": "4711", "nodes": [], "suspects": ["gpu002"], "proof": "no_xid or gpu_count", "load": "gpu_exact"}
    (here / "case.json").write_text(json.dumps(case))
    code, text = return_nodes([CLUSTER, "gpu002", "--case", "case.json", "--json"], Launched())
    assert (code, json.loads(text)[0]["said"]) == (10, "NOT PROVEN")
    assert sorted(reason.partition(",")[0] for reason in json.loads(text)[0]["reasons"]) == [
        "network.pairwise_busbw: the history has it",
        "storage.mounts: the history has it",
    ]


def test_a_history_that_others_may_have_written_is_not_believed_unasked(here: Path) -> None:
    path = default_path(resolve(CLUSTER).name)
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    write_run(path, PastRun(resolve(CLUSTER).name, 1.0, 2.0), [result("storage.mounts", FAIL, "gpu002")])
    code, text = return_nodes([CLUSTER, "gpu002"], Launched())
    assert (code, "may be written by others; expected a folder that only you and root may write" in text) == (4, True)
    assert return_nodes([CLUSTER, "gpu002", "--history", str(path)], Launched())[0] == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "gpu001"], "'demo' is a recording or capture"),
        ([CLUSTER, "gpu9"], "NODES: 'gpu9' is not a node of "),
        ([CLUSTER, ""], "NODES names no node"),
        ([CLUSTER, "gpu001", "--beside", "gpu007"], "--beside: 'gpu007' is not a node of "),
        ([CLUSTER, "gpu001", "-k", "gpu"], "'-k': return chooses nodes and checks itself"),
        ([CLUSTER, "gpu001", "-kmemlock"], "'-kmemlock': return chooses nodes"),
        ([CLUSTER, "gpu001", "-mhost"], "'-mhost': return chooses nodes"),
        ([CLUSTER, "gpu001", "-x"], "'-x': return chooses nodes"),
        ([CLUSTER, "gpu001", "--deselect", "a"], "'--deselect': return chooses nodes"),
        ([CLUSTER, "gpu001", "--sudo", "checks/host"], "'checks/host': return chooses nodes"),
        ([CLUSTER, "gpu001", "checks/host"], "'checks/host': return chooses nodes"),
        ([CLUSTER, "gpu001", "--beside", "gpu[001-002]"], "--beside: gpu001 is among the nodes to be proven"),
        ([CLUSTER, "gpu003", "--case", "silent.json"], "--case 'silent.json' names nothing that proves it"),
        ([CLUSTER, "gpu001", "--nodes=gpu001"], "'--nodes=gpu001': return chooses nodes"),
        (
            [CLUSTER, "gpu001", "--redact"],
            "'--redact': return chooses nodes and checks itself, by their names",
        ),
        (
            [CLUSTER, "gpu001", "--report=out"],
            "'--report=out': return chooses nodes and checks itself, by their names and in",
        ),
        ([CLUSTER, "gpu001", "--case", "none.json"], "'none.json': No such file"),
        ([CLUSTER, "gpu001", "--case", "half.json"], "--case 'half.json' is none; expected what clusterproof case"),
        ([CLUSTER, "gpu001", "--case", "other.json"], "--case 'other.json' suspects gpu003; expected one of gpu001"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line_before_anything_runs(
    here: Path, words: list[str], message: str
) -> None:
    (here / "half.json").write_text('{"nodes": ["gpu001"]}')
    other = {"case": "1", "nodes": ["gpu003"], "suspects": [], "proof": "", "load": "gpu_exact"}
    (here / "other.json").write_text(json.dumps(other))
    (here / "silent.json").write_text(json.dumps({**other, "load": ""}))
    launched = Launched()
    code, text = return_nodes(words, launched)
    assert (code, text.count("\n"), launched.typed) == (4, 1, [])
    assert text.startswith(f"clusterproof return: {message}")


def test_what_another_wrote_steers_no_terminal_where_it_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {"case": "1", "nodes": ["\x1b]0;gpu\x07\u202e"], "suspects": [], "proof": "", "load": "gpu_exact"}
    (here / "case.json").write_text(json.dumps(case))
    assert main(["return", CLUSTER, "gpu001", "--case", "case.json"]) == 4
    assert "suspects \\x1b]0;gpu\\x07\\u202e; expected one of gpu001" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "ends"), [(2, (2, "interrupted; no node")), (3, (4, "came to no end (exit code 3)"))])
def test_a_step_that_came_to_no_end_proves_nothing(code: int, ends: tuple[int, str]) -> None:
    returned, text = return_nodes([CLUSTER, "gpu001"], Launched(code=code))
    assert (returned, ends[1] in text, "FIT" in text) == (ends[0], True, False)


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"submit_host": ""}, ["scontrol update nodename='gpu[001-002]' state=resume"]),
        ({"kubernetes": "context:prod"}, ["kubectl --context=prod uncordon gpu001 gpu002"]),
        ({}, []),
    ],
)
def test_a_line_gives_the_nodes_back_where_it_is_known_to_whom(settings: dict[str, str], lines: list[str]) -> None:
    assert return_command(["gpu001", "gpu002"], replace(resolve(CLUSTER), settings=settings)) == lines


@needs_cluster
def test_of_two_real_nodes_the_healthy_one_is_fit_and_the_one_with_ecc_errors_is_not() -> None:
    images = {name: gpu_node(healthy_p5(name)) for name in ("gpu001", "gpu002")}
    images["gpu002"] = with_nvml(images["gpu002"], gpu=1, ecc_uncorrected_dram=14)
    with testbed(images) as bed:
        arguments = ["return", "ssh:gpu[001-002]", "gpu[001-002]", "--expect", "gpus=8,efa=32"]
        ran = bed.run([sys.executable, "-c", TYPED, *arguments], timeout=LIMIT_S)
    output = ran.stdout.decode()
    assert (ran.returncode, "FIT         gpu001\n" in output) == (1, True), output
    assert "NOT FIT     gpu002\n            gpu.no_uncorrected_ecc: GPU 1: uncorrected ECC errors: 14 in DRAM" in output
