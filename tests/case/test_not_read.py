"""Files not read, and parts left out of a case, are reported; what was not read is not known to be sound."""

from __future__ import annotations

import json
import os
import pickle
import socket
from pathlib import Path
from typing import cast

import pytest

from clusterproof.plugins.case import Span, kubernetes, pods
from clusterproof.plugins.case.advice import KEEP, NOT_KNOWN, TEST, opened_case
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.command import case
from clusterproof.plugins.case.ends import HEAD_BYTES, TAIL_BYTES
from clusterproof.plugins.case.folder import collect
from clusterproof.plugins.case.names import REPORT
from clusterproof.plugins.case.redaction import redacted
from clusterproof.plugins.case.report import NODES, OF_RUN, rows
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.reports.run_folder import RUN_FILES
from tests.case.files import BROKEN_GPU, CUDA_OF_3, RECORD, SACCT, XID_79, case_of, written
from tests.training_run.recorded import dump

FAILED = {"check": "gpu.no_xid", "verdict": "fail", "message": "Xid 79", "action": "reset or reboot"}
PASSED = {"check": "gpu.no_xid", "verdict": "pass"}
DEEP = "1/2/3/4/5/6/7"


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_evidence_of_another_time_is_said_in_one_line(tmp_path: Path) -> None:
    log = XID_79.format(time="01:00:00") + XID_79.format(time="01:00:01")
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    (gap,) = [gap for gap in case.collected.missing if "another time" in gap]
    assert gap.endswith("is not shown: 2 lines, gpu003 2026-03-01 01:00:00, gpu003 2026-03-01 01:00:01")


@pytest.mark.long
def test_a_file_that_is_not_read_whole_is_said(tmp_path: Path) -> None:
    long = ("x" * 65_535 + "\n") * ((HEAD_BYTES + TAIL_BYTES) // 65_536)
    missing = collect(written(tmp_path, {"rank_0.log": f"{long}x", "whole.log": long})).missing
    assert [gap for gap in missing if "MiB" in gap] == ["rank_0.log: all between its first 2 MiB and its last 6 MiB"]


def test_objects_of_kubernetes_that_are_too_many_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "MAX_ITEMS", 3)
    items = [{"kind": "Pod", "metadata": {"name": f"worker-{number}"}, "status": {}} for number in range(5)]
    whole, most = (json.dumps({"kind": "List", "items": items[:count]}) for count in (5, 3))
    missing = collect(written(tmp_path, {"pods.json": whole, "few.json": most})).missing
    assert [one for one in missing if "objects" in one] == ["pods.json: all but its first 3 objects"]


@pytest.mark.parametrize(
    ("content", "is_read"),
    [
        (b"ERROR: Unexpected bus error encountered in worker.\n\0KeyError: 'image'\n", True),  # PyTorch writes its NUL
        (b"3: \0" * 4096 + "é".encode() + b"\nKeyError: 'image'\n", True),  # a block left by a second writer
        (b"PK\3\4\0\0\x08\x08\0\0\xff\xfe", False),
        (b"\x80\4\x95", False),
    ],
)
def test_a_log_with_nul_bytes_is_text_and_read(content: bytes, is_read: bool, tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_bytes(content)
    assert (collect(tmp_path).read == ("1 file of output",)) is is_read


def test_a_node_of_which_nothing_was_read_is_not_known(tmp_path: Path) -> None:
    healthy = "2026-03-01T07:00:00,000000+00:00 nvme nvme0: ready\n"
    checked = lines({**PASSED, "node": "gpu002"})
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu001-dmesg.txt": healthy, "results.jsonl": checked})
    assert case.advice.nodes == {"gpu001": "keep", "gpu002": "keep", "gpu003": "drain", "gpu004": "not known"}


def test_a_node_that_a_check_fails_is_to_be_tested_and_that_is_no_log_of_it(tmp_path: Path) -> None:
    results = {"results.jsonl": lines({**FAILED, "node": "gpu002"}, {**PASSED, "node": "gpu001"})}
    case = case_of(tmp_path, {**RECORD, **results, "rank_0.log": "2026-03-01 08:00:00,000 KeyError: 'image'\n"})
    assert (case.verdict.cause, case.advice.exclude) == ("code", ())
    assert (case.advice.nodes["gpu001"], case.advice.nodes["gpu002"]) == ("keep", "test")
    assert [row.mark for row in rows(case) if row.where == "gpu002"] == [OF_RUN]
    assert NODES not in [row.mark for row in rows(case)]


def test_a_failed_check_is_not_called_no_known_sign(tmp_path: Path) -> None:
    results = [lines({**FAILED, "node": node}) for node in ("gpu002", "gpu001", "gpu002")]
    case = case_of(tmp_path, {"results.jsonl": "".join(results)})
    assert (
        case.verdict.why
        == "the job says nothing of its end; checks failed on gpu002, gpu001, at a time that is not known"
    )


@pytest.mark.long
def test_results_are_read_whole_however_long_they_are(tmp_path: Path) -> None:
    filler = lines({**PASSED, "node": "gpu001", "title": "x" * 1000}) * 9000
    results = filler[: len(filler) // 2] + "\n" + lines({**FAILED, "node": "gpu002"}) + filler
    case = case_of(tmp_path, {**RECORD, "results.jsonl": results})
    assert [fact.node for fact in case.collected.facts] == ["gpu002"]
    assert not any("MiB" in gap for gap in case.collected.missing)


def test_a_report_of_the_suite_is_no_output_of_the_job(tmp_path: Path) -> None:
    """Its summary quotes what nodes said, and would hide that there is no output."""
    assert {*REPORT} == {*RUN_FILES}
    report = {f"report/{name}": "RuntimeError: CUDA error: unspecified launch failure\n" for name in REPORT}
    results = {"report/results.jsonl": lines({**PASSED, "node": "gpu001"})}
    recording = {"cluster.json": "{}", "nodes/gpu001.json": "{}", "outbox-1.jsonl": "{}"}
    case = case_of(tmp_path, {**report, **results, **recording})
    assert case.collected.events == ()
    assert "no output of the job" in case.collected.missing
    (own,) = [gap for gap in case.collected.missing if "clusterproof's reports" in gap]
    assert own.startswith("other files of clusterproof's reports and recordings: cluster.json, outbox-1.jsonl, nodes/")
    assert not any("form is not known" in gap for gap in case.collected.missing)
    alone = case_of(tmp_path / "job", {"summary.txt": report["report/summary.txt"]})
    assert alone.collected.read == ("1 file of output",)


def test_each_kind_of_what_is_not_read_has_its_line(tmp_path: Path) -> None:
    folder = written(tmp_path, {**RECORD, ".hidden.out": "x", f"{DEEP}/deep.out": "x", "odd.bin": "x"})
    os.mkfifo(folder / "node.fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "node.socket"))
    (folder / "link.out").symlink_to("sacct.txt")
    missing = collect(folder).missing
    for line in (
        "names that begin with a dot are not read: .hidden.out",
        "pipes, sockets and devices are not read: node.fifo, node.socket",
        f"folders deeper than 6 are not read: {DEEP}",
        "links are not followed: link.out",
    ):
        assert missing.count(line) == 1


def test_a_folder_that_cannot_be_opened_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, {**RECORD, "locked/rank_0.log": "x"})
    opened = os.scandir

    def refused(path: str) -> object:
        if os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert "folders that cannot be opened: locked (Permission denied)" in collect(folder).missing


@pytest.mark.parametrize("name", ["train-kernel-fusion.out", "my-journal.err"])
def test_the_output_of_a_job_that_trains_kernels_is_output(name: str, tmp_path: Path) -> None:
    assert case_of(tmp_path, {name: "2026-03-01 08:00:00,000 KeyError: 'image'\n"}).verdict.cause == "code"


CLEAR = "\x1b[2J\x9b31m\u202e\n# x"


def test_names_of_others_steer_no_terminal(tmp_path: Path) -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": f"p{CLEAR}|`x`"},
        "spec": {"nodeName": f"gpu1{CLEAR}"},
        "status": {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]},
    }
    files = {
        f"gpu9{CLEAR}-dmesg.txt": XID_79.format(time="08:00:01"),
        f"gpu8{CLEAR}/dmesg": XID_79.format(time="08:00:01"),
        f"rank_3{CLEAR}.log": CUDA_OF_3,
        f"x{CLEAR}.bin": "x",
        "pods.json": json.dumps({"kind": "List", "items": [pod]}),
        "sacct.txt": SACCT.format(state=f"FAILED{CLEAR.partition(chr(10))[0]}<b>`x`</b>"),
        "results.jsonl": lines({**FAILED, "node": f"gpu7{CLEAR}"}, {**FAILED, "node": "gpu003", "message": CLEAR}),
    }
    folder = written(tmp_path / f"job{CLEAR}", files)
    for form in ([], ["--markdown"], ["--json"]):
        _, text = case([str(folder), *form])
        assert [line for line in text.split("\n") if not line.isprintable() or line.startswith("#")] == []
        assert "<b>" not in text
    nodes = opened_case(collect(folder)).advice.nodes
    assert set(nodes) == {"gpu001", "gpu002", "gpu003", "gpu004"}


@pytest.mark.parametrize(("verdict", "due"), [("incomplete", NOT_KNOWN), ("not applicable", NOT_KNOWN), ("pass", KEEP)])
def test_a_node_of_which_checks_found_out_nothing_is_not_said_to_be_kept(
    tmp_path: Path, verdict: str, due: str
) -> None:
    case = case_of(tmp_path, {**RECORD, "results.jsonl": lines({**PASSED, "node": "gpu002", "verdict": verdict})})
    assert case.advice.nodes["gpu002"] == due


def test_a_result_that_breaks_off_is_said(tmp_path: Path) -> None:
    cut = lines({**PASSED, "node": "gpu002"}, {**FAILED, "node": "gpu002"})[:-20]
    missing = case_of(tmp_path, {**RECORD, "results.jsonl": cut}).collected.missing
    assert "results.jsonl: 1 line that is no result; expected one in JSON on each" in missing


def test_a_node_whose_log_was_read_in_part_is_not_said_to_be_kept(tmp_path: Path) -> None:
    line = "2026-03-01T07:30:00,000000+00:00 eth0: link becomes ready, as often, at all times and to no end\n"
    log = {"gpu002-dmesg.txt": line * ((9 << 20) // len(line))}
    case = case_of(tmp_path, {**RECORD, **log})
    assert "gpu002-dmesg.txt: all between its first 2 MiB and its last 6 MiB" in case.collected.missing
    assert case.advice.nodes["gpu002"] == NOT_KNOWN


READY = "nvme nvme0: ready"


@pytest.mark.parametrize(
    ("log", "due", "is_late"),
    [
        (("09:00:00", READY, "09:30:00", READY), NOT_KNOWN, True),
        (("09:30:00", READY, "09:00:00", READY), NOT_KNOWN, True),  # journalctl -r
        (("07:05:00", "Linux version 5.15.0", "08:05:01", READY), NOT_KNOWN, True),
        (("08:05:00", "Linux version 5.15.0", "08:05:01", READY), TEST, True),  # booted while the job ran
        (("07:30:00", READY, "08:05:00", "Linux version 5.15.0"), TEST, False),
        (("08:05:00", READY, "09:05:00", READY), KEEP, False),
        (("06:05:00", "Linux version 5.15.0", "09:05:01", READY), KEEP, False),
    ],
)
def test_a_node_whose_log_is_of_after_the_job_is_not_said_to_be_kept(
    tmp_path: Path, log: tuple[str, ...], due: str, is_late: bool
) -> None:
    line = "2026-03-01T{},000000+00:00 {}\n"
    case = case_of(tmp_path, {**RECORD, "gpu002-dmesg.txt": line.format(*log[:2]) + line.format(*log[2:])})
    assert case.advice.nodes["gpu002"] == due
    late = "the kernel logs of gpu002 from the time of the job: what was read begins later; journalctl -k -b -1"
    assert any(gap.startswith(late) for gap in case.collected.missing) is is_late


def test_redacted_the_same_nodes_are_kept(tmp_path: Path) -> None:
    odd = "2026-03-01T07:30:00,000000+00:00 nvme nvme0: ready\nx kernel: NVRM: what stands before it is not known\n"
    results = lines({**PASSED, "node": "gpu004"})
    collected = collect(written(tmp_path, {**RECORD, "gpu002-dmesg.txt": odd, "results.jsonl": results}))
    due = [*opened_case(collected).advice.nodes.values()]
    assert due == [NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, KEEP]
    assert [*opened_case(redacted(collected)).advice.nodes.values()] == due


def test_a_second_dump_of_a_rank_is_said(tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        for rank in range(4):
            dumped = pickle.dumps(dump(rank, {"0": (12, 11)}), protocol=2)
            (tmp_path / attempt / f"nccl_trace_rank_{rank}").write_bytes(dumped)
    missing = case_of(tmp_path, RECORD).collected.missing
    assert any(text.startswith("other dumps of ranks 0, 1, 2, 3 are left out: first/nccl_trace") for text in missing)


def test_a_record_that_is_too_long_is_not_read_whole_and_that_is_said(tmp_path: Path) -> None:
    rows = "".join(f"77_{task}|COMPLETED|0:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu001\n" for task in range(4_000))
    sacct = f"JobID|State|ExitCode|Start|End|NodeList\n{rows}"
    missing = case_of(tmp_path, {"sacct.txt": sacct.replace("77_3999|COMPLETED", "77_3999|FAILED")}).collected.missing
    assert "sacct.txt: all behind its first 200,000 characters" in missing


def test_nodes_of_a_job_that_are_not_asked_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def listed(self, *_: object, **__: object) -> None:
            raise KubernetesError("it does not answer")

    monkeypatch.setattr(kubernetes, "MAX_NODES", 1)
    builder = CaseBuilder(nodes_of_pods={"a": "a.x", "b": "b.x", "c": "c.x"})
    kubernetes._Reader(cast("Api", Silent()), "default/train", builder, Clock(2026)).take_nodes(Span())
    assert "whether 2 more of its nodes are ready: 1 are asked" in builder.missing


def test_nodes_that_the_table_of_sacct_cuts_off_are_said_to_be_unread(tmp_path: Path) -> None:
    table = (
        "JobID             State ExitCode        NodeList\n"
        "------------ ---------- -------- ---------------\n"
        "77            NODE_FAIL      1:0 gpunode[001-00+\n"
    )
    case = case_of(tmp_path, {"sacct.txt": table})
    assert "sacct.txt: the nodes of the job, whose list is cut off; sacct -P does not cut it" in case.collected.missing
    for nodes in ("   gpu[001-004] ", "           N/A ", "None assigned  "):
        whole = case_of(tmp_path / nodes.strip()[:3], {"sacct.txt": table.replace("gpunode[001-00+", nodes)})
        assert not any("cut off" in words for words in whole.collected.missing)


@pytest.mark.parametrize(
    "text",
    [
        "$ kubectl describe pod llama-0\nName:             llama-0\nNamespace:        ml\nStatus:           Failed\n",
        "NAME      READY   STATUS    RESTARTS   AGE\nllama-0   0/1     Evicted   0          19h\n",
        "LAST SEEN   TYPE      REASON    OBJECT        MESSAGE\n3m          Warning   Evicted   pod/llama-0   Low\n",
    ],
)
def test_what_kubectl_tells_people_is_said_to_be_unread(text: str, tmp_path: Path) -> None:
    said = "pods.txt: what kubectl tells people; expected kubectl get pods,jobs,events -o json"
    assert said in case_of(tmp_path, {"pods.txt": text}).collected.missing
    assert said not in case_of(tmp_path / "log", {"pods.txt": "Name: llama\nNAME of the run\n"}).collected.missing
