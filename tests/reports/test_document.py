"""A run's page as read without its script, and the script's data."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.document.data import MAX_OF_COLLECTOR
from clusterproof.reports.document.sections import MAX_ROWS
from clusterproof.reports.formats.html import document
from tests.builders.recordings import boot, gpu, node, nvml, unreached
from tests.reports.page import Page
from tests.reports.reported import HOSTILE, HUGE, of_each_verdict, result, run_of

NODES = pytest.mark.parametrize("name", [*HOSTILE, HUGE], ids=[*map(ascii, HOSTILE), "a megabyte"])


def page(*results: Any, **more: Any) -> Page:
    return Page(document(run_of(results or of_each_verdict(), **more)))


def test_the_verdict_and_the_findings_read_without_script() -> None:
    text = " ".join(page().text.split())
    assert "not fit 8 nodes: 4 fit, 2 failed, 1 not proven" in text
    assert "2 investigategpu[002-003]Title of ecc" in text
    for raw in (
        "fail Title of ecc: 2 of 7 nodes (gpu[002-003]), 2 GPUs",
        "gpu[002-003]: GPU 1: 14 errors; expected 0",
        "see itnvidia-smi -q | grep 'x'",
        "meansIt means something.",
        "doDo something.",
        "ownerhyperpod-node-debugger § G",
        "incomplete gpu005: nvml did not answer (gpu.ecc)",
        "pytest --cluster prod --nodes gpu005 -k test_ecc",
        "no GPU on this node",
    ):
        assert raw in text


def test_a_healthy_cluster_is_said_to_be_fit_as_far_as_checked() -> None:
    raw = page(result("gpu.ecc", "gpu001"), exit_code=0)
    text = " ".join(raw.text.split())
    assert "fit 1 node: 1 fit" in text
    assert "Nothing failed" in text
    assert "Not measured" not in text
    assert "Run again" not in text


def test_only_the_pages_own_style_and_script_may_run_and_nothing_is_asked_of_the_network() -> None:
    raw = page()
    policy = next(value["content"] or "" for tag, value in raw.elements if tag == "meta" and "http-equiv" in value)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for element, source in (("script", "script-src"), ("style", "style-src")):
        text = re.search(rf"<{element}>(.*?)</{element}>", raw.source, re.DOTALL)
        assert text
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert not [name for name in ("src", "srcset", "action", "style", "onclick", "onerror") if raw.attributes(name)]
    assert [link for link in raw.attributes("href") if not link.startswith("#")] == []


def saying(word: str) -> Page:
    """The page of a node with this name, which repeats it in every text."""
    raw = node(word, boot=boot(hostname=word, kernel=word), nvml=nvml(gpu(0, uuid=word, name=word)), odd={word: word})
    results = [
        result("gpu.ecc", word, Verdict.FAIL, word),
        result("gpu.x", word, Verdict.INCOMPLETE, word, cause=word),
        result("gpu.y", word, Verdict.NOT_APPLICABLE, word),
    ]
    return Page(document(run_of(results, [raw])).encode("utf-8", "backslashreplace").decode())


@NODES
def test_what_a_node_says_is_text(name: str) -> None:
    shown, harmless = saying(name), saying("gpu001")
    assert len(shown.source) < 400_000
    assert {tag for tag, _ in shown.elements} == {tag for tag, _ in harmless.elements}
    assert shown.source.count("<script") == 2
    assert shown.source.count("</script") == 2
    assert not [key for _, raw in shown.elements for key in raw if key.startswith("on")]
    assert len(shown.data["nodes"]) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "\ud800", [[[[]]]], {"a": {"__proto__": 1}}])
def test_the_script_is_given_json_whatever_a_node_reported(value: object) -> None:
    raw = page(result("gpu.ecc", "gpu001"), data=[node("gpu001", odd={"value": value})])
    assert len(raw.data["evidence"]["values"]) == 1


def test_the_script_is_given_every_verdict_and_word_once() -> None:
    raw = page().data
    assert [check[0] for check in raw["checks"]] == ["gpu.ecc", "host.word", "control_plane.quota"]
    assert raw["letters"] == [".FFCI-.. ", "....     ", "        F"]
    assert [0, "F", "GPU 1: 14 errors; expected 0", "1-2"] in raw["words"]
    assert [2, "F", "8; expected 16", "8"] in raw["words"]


@pytest.mark.long
def test_words_with_nothing_but_each_nodes_own_name_in_them_stand_once() -> None:
    results = [refused(number, f"ssh gpu{number:04d} true") for number in range(3_500)]
    raw = page(*results).data
    assert raw["words"] == [[0, "F", "refused: \0 said no", "0-3499"]]
    assert (raw["checks"][0][5], raw["checks"][0][7]) == ("ssh \0 true", "See whether \0 is running.")


@pytest.mark.long
def test_what_checks_said_has_room_before_the_commands_of_each_node() -> None:
    results = [refused(number, f"ssh {'x' * 200}.{number} true") for number in range(3_500)]
    results += [result("gpu.ecc", "gpu0000", Verdict.CONCERN, "14 errors")]
    rows = page(*results).data["words"]
    assert all(row[2] for row in rows)
    assert [row[4:] for row in rows[:2]] == [[], [results[1].evidence, ""]]
    assert rows[-2][4:] == [None, ""]


def refused(number: int, command: str) -> Result:
    name = f"gpu{number:04d}"
    remedy = f"See whether {name} is running."
    return result("node.reachable", name, Verdict.FAIL, f"refused: {name} said no", evidence=command, remedy=remedy)


def test_a_nodes_page_has_its_identity_its_gpus_its_versions_and_how_each_collector_ended() -> None:
    components = {"components": {"kernel": {"version": "6.8.0"}, "driver": {"version": "580.1"}}, "toolkits": []}
    collectors = {"boot": boot(), "nvml": nvml(gpu(0), gpu(1)), "versions": components}
    raw = node("gpu001", **collectors, nvme=Collected(Status.TIMED_OUT, detail="no answer within 5 s"))
    data = page(result("gpu.ecc", "gpu001"), data=[raw]).data
    tables = {title: rows for title, _, rows in (data["tables"][number] for number in data["known"][0])}
    assert ["kernel", "6.8.0-1021-aws"] in tables["Node"]
    assert [row[1] for row in tables["GPUs"]] == [gpu(0)["uuid"], gpu(1)["uuid"]]
    assert tables["Versions"] == [["driver", "580.1"], ["kernel", "6.8.0"]]
    ending, values = data["evidence"]["nodes"][0]
    assert [row[:2] for row in data["evidence"]["endings"][ending]] == [
        ["boot", "read"],
        ["nvml", "read"],
        ["versions", "read"],
        ["nvme", "timed_out"],
    ]
    assert data["evidence"]["values"][values[0]] == boot()
    assert values[3] == -1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(10**400), True, "many", None, [8]])
def test_a_number_that_no_node_can_have_is_left_out_of_its_table(value: object) -> None:
    raw = node("gpu001", boot=boot(memory_kib=value, uptime_s=value))
    rows = dict(page(result("gpu.ecc", "gpu001"), data=[raw]).data["tables"][0][2])
    assert rows["kernel"] == "6.8.0-1021-aws"
    assert rows.keys().isdisjoint({"memory", "up for"})


def test_a_table_of_a_node_says_how_many_rows_it_leaves_out() -> None:
    mounts = [{"path": f"/mnt/{number}", "type": "nfs4", "source": "a:/b", "alive": "yes"} for number in range(70)]
    raw = node("gpu001", boot=boot(), mounts={"mounts": mounts})
    data = page(result("gpu.ecc", "gpu001"), data=[raw]).data
    (rows,) = (rows for title, _, rows in data["tables"] if title == "Mounts")
    assert [row[0] for row in rows[-2:]] == ["/mnt/63", "… and 6 more rows"]


def test_devices_and_evidence_that_are_alike_stand_once() -> None:
    device = {"driver": "efa", "ports": [{"state": "4: ACTIVE", "rate": "100 Gb/sec"}]}
    rdma = {"devices": [{"name": f"rdmap{number}s0", **device} for number in (79, 80, 81)]}
    nodes = [node(f"gpu{number:03d}", rdma=rdma) for number in range(1, 50)]
    data = page(*(result("gpu.ecc", evidence.node) for evidence in nodes), data=nodes).data
    tables = [table for table in data["tables"] if table[0] == "RDMA devices"]
    assert [rows for _, _, rows in tables] == [[["rdmap[79-81]s0", "3", "efa", "", "4: ACTIVE", "100 Gb/sec"]]]
    assert data["evidence"]["values"] == [rdma]


def test_evidence_has_a_bound_and_the_sick_nodes_come_first() -> None:
    def heavy(name: str) -> NodeEvidence:
        return node(name, log={"lines": [f"{name} {number}" * 9 for number in range(300)]})

    nodes = [heavy(f"gpu{number:03d}") for number in range(1, 201)]
    results = [
        result("gpu.ecc", evidence.node, Verdict.FAIL if evidence is nodes[-1] else Verdict.PASS) for evidence in nodes
    ]
    raw = page(*results, data=nodes)
    kept = [number for number, (_, values) in enumerate(raw.data["evidence"]["nodes"]) if values]
    assert 199 in kept
    assert 10 < len(kept) < 150
    assert len(raw.source) < 2_000_000


def test_a_collector_that_is_too_long_is_cut_and_says_so() -> None:
    data = page(result("gpu.ecc", "gpu001"), data=[node("gpu001", log={"text": HUGE})]).data
    (value,) = data["evidence"]["values"]
    assert len(value) < MAX_OF_COLLECTOR + 100
    assert value.endswith("--record keeps all)")


def test_versions_show_who_differs_in_each_group() -> None:
    def of(name: str, version: str) -> NodeEvidence:
        return node(name, versions={"components": {"driver": {"version": version}, "slurm": {"version": "24"}}})

    nodes = [of("gpu001", "580"), of("gpu002", "580"), of("gpu003", "575"), unreached("gpu004")]
    text = page(*(result("gpu.ecc", evidence.node) for evidence in nodes), data=nodes).text
    assert "driver5802 of 3575: gpu003" in text.replace("p5.48xlarge", "")
    assert "1 component is the same on all nodes of a group that report it" in text


def test_what_was_not_chosen_is_named() -> None:
    text = page(left_out={"perf.busbw": "The bus is slow"}).text
    assert "1 check was not chosen for this run" in text
    assert "perf.busbw The bus is slow" in text


def test_a_check_is_filtered_by_the_owner_that_its_findings_name() -> None:
    passed = result("gpu.ecc", "gpu001", team="hardware")
    failed = result("gpu.ecc", "gpu002", Verdict.FAIL, "14 errors", team="DC operations (#dc-ops)")
    assert [check[3] for check in page(passed, failed, passed).data["checks"]] == ["DC operations (#dc-ops)"]


def test_what_changed_since_the_last_run_is_counted_where_there_is_no_room_for_all() -> None:
    changed = [result(f"gpu.c{n}", "gpu001", Verdict.FAIL, since_last="new") for n in range(MAX_ROWS + 3)]
    shown = page(*changed, last_began=0.0)
    assert "gpu.c299" in shown.text
    assert "… and 3 more" in shown.text


def test_the_row_behind_the_nodes_has_the_name_of_what_was_evaluated() -> None:
    def whole(*subjects: str) -> str:
        results = [result("run.slow", "llama", subject=subject) for subject in subjects]
        return str(Page(document(run_of(results, []))).data["whole"])

    assert whole("run") == "run"
    assert whole("cluster") == whole("run", "cluster") == "cluster"


def test_where_nothing_failed_what_was_not_measured_comes_before_what_is_worth_a_look() -> None:
    open_and_odd = [
        result("gpu.a", "gpu001", Verdict.INCOMPLETE, "not read"),
        result("gpu.b", "gpu001", Verdict.CONCERN, "odd"),
    ]
    failed = [*open_and_odd, result("gpu.c", "gpu001", Verdict.FAIL, "bad")]
    for results, order in ((open_and_odd, ["gaps", "findings"]), (failed, ["findings", "gaps"])):
        assert re.findall(r'<section id="(findings|gaps)"', document(run_of(results))) == order


def test_what_is_worth_a_look_of_a_training_run_comes_first_and_is_open() -> None:
    of_run = [
        result("run.hung", "llama", Verdict.INCOMPLETE, "no file", subject="run"),
        result("run.data_wait", "llama", Verdict.CONCERN, "waits", title="Wait for data", subject="run"),
    ]
    page = document(run_of(of_run, []))
    assert re.findall(r'<section id="(findings|gaps)"', page) == ["findings", "gaps"]
    assert re.search(r'<details class="concern" [^>]* open>', page)
    assert "First look at run llama: Wait for data." in Page(page).text
