"""Logs of tests that users ran, parsed into collectors that only captures have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.parsing import exit_status
from clusterproof.plugins.evidence.perf import parse_dcgm as dcgmi
from clusterproof.plugins.evidence.perf import parse_dcgm_watches as dcgm_watches
from clusterproof.plugins.evidence.perf import parse_nccl as nccl_tests
from clusterproof.plugins.evidence.perf import parse_nccom as nccom
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.captures.captured import evaluated as of_type
from tests.faults.captured_fault import evaluated
from tests.testbed.outputs import NCCL_ROWS, dcgm_json, dcgm_table, nccl_log, nccom_log


def only_log(collected: Any) -> dict[str, Any]:
    ((collector, value),) = collected.items()
    (log,) = value["logs"]
    assert collector in ("dcgm_diag", "nccl_tests", "nccom")
    return dict(log)


# dcgmi


def results(text: str) -> dict[str, list[tuple[str, str]]]:
    tests = only_log(dcgmi.read_table(text))["tests"]
    return {test["name"]: [(result["gpu"], result["status"]) for result in test["results"]] for test in tests}


def test_a_note_is_wrapped_in_the_middle_of_a_word_or_at_a_blank() -> None:
    rows = ("| PCIe      | Fail - All       |", "| Warning   | The links are    |", "|           | down. Run the f  |")
    more = ("|           | ield diagnostic  |", "|           | .                |")
    (test,) = only_log(dcgmi.read_table("\n".join((*rows, *more))))["tests"]
    assert test["results"][0]["messages"][0]["text"] == "The links are down. Run the field diagnostic."


def test_a_table_has_the_results_of_single_gpus() -> None:
    by_test = results(dcgm_table(memory=("Pass - GPUs: 0, 1, 2, 4, 5, 6, 7", "Fail - GPU: 3")))
    assert by_test["GPU Memory"] == [("0, 1, 2, 4, 5, 6, 7", "pass"), ("3", "fail")]
    assert by_test["PCIe"] == [("", "pass")]


def test_a_table_of_dcgm_4_names_each_gpu_before_its_result() -> None:
    assert results(dcgm_table(memory=("Fail", "GPU0: Pass", "GPU1: Fail")))["GPU Memory"] == [
        ("", "fail"),
        ("0", "pass"),
        ("1", "fail"),
    ]


def test_a_warning_of_dcgm_4_is_none_the_less_one_where_it_calls_its_gpus_failed() -> None:
    """Beside a test's name it prints `Warn`, and beside a GPU `Fail` for the same result."""
    rows = ("Warn", "GPU0: Pass", "GPU1: Fail", "CPU0: Fail")
    assert results(dcgm_table(memory=rows))["GPU Memory"] == [
        ("", "warn"),
        ("0", "pass"),
        ("1", "warn"),
        ("CPU 0", "warn"),
    ]


def test_a_note_of_dcgm_4_is_of_the_gpu_that_it_names() -> None:
    rows = ("| memory", "Fail"), ("|", "GPU0: Fail"), ("| Warning: GPU0", "remap"), ("|", "GPU1: Pass")
    table = "".join(f"{name:<14}| {cell:<40}|\n" for name, cell in (*rows, ("| Warning: GPU1", "little memory")))
    (test,) = only_log(dcgmi.read_table(table))["tests"]
    texts = [[message["text"] for message in result["messages"]] for result in test["results"]]
    assert texts == [[], ["remap"], ["little memory"]]


def test_a_note_that_is_broken_in_the_middle_of_a_word_is_one_text() -> None:
    table = dcgm_table(memory=("Fail - GPU: 0",), warning="GPU 0 Thermal violations totaling 13.3 second")
    rule = "+-----  Stress"
    broken = table.replace(
        rule, f"|                           | s started at 9.7 seconds                       |\n{rule}"
    )
    (result,) = only_log(dcgmi.read_table(broken))["tests"][-1]["results"]
    assert result["messages"] == [
        {"text": "GPU 0 Thermal violations totaling 13.3 seconds started at 9.7 seconds", "severity": None}
    ]


def test_an_info_is_no_warning() -> None:
    table = dcgm_table(warning="GPU 0 max power 299.5 W").replace("| Warning", "| Info   ")
    assert [test["results"][0]["messages"] for test in only_log(dcgmi.read_table(table))["tests"]] == [[]] * 7


@pytest.mark.parametrize("dcgm", [3, 4])
def test_json_says_which_gpu_failed_why_and_how_badly(dcgm: int) -> None:
    log = only_log(dcgmi.read_json(dcgm_json("Fail", severity=2, warning="bad", dcgm=dcgm)))
    failed = [result for test in log["tests"] for result in test["results"] if result["status"] == "fail"]
    assert failed == [{"gpu": "3", "status": "fail", "messages": [{"text": "bad", "severity": 2}]}]
    assert log["version"] == {3: "3.3.9", 4: "4.2.3"}[dcgm]


def test_a_result_of_what_is_no_gpu_says_of_what() -> None:
    result = {"entity_group": "CPU", "entity_id": 1, "status": "Skip"}
    tests = [{"name": "cpu_eud", "results": [result]}]
    log = only_log(dcgmi.read_json(json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": tests}]}})))
    assert [(row["gpu"], row["status"]) for row in log["tests"][0]["results"]] == [("CPU 1", "skip")]


def test_what_a_wrapper_prints_around_the_json_is_passed_over() -> None:
    assert only_log(dcgmi.read_json(f"WARNING: odd\n{dcgm_json()}\nexit code: 226\n"))["exit"] == 226


def test_json_that_is_cut_is_read_in_time_that_grows_as_it_does() -> None:
    depth = 200_000  # of lists in each other: minutes, where the brackets that are open are written out at each one
    assert only_log(dcgmi.read_json('{"DCGM Diagnostic": ' + "[" * depth + "]" * depth))["tests"] == []


def test_the_links_of_dcgmi_are_those_of_nvml() -> None:
    collected: Any = dcgm_watches.read_nvlink_status("gpuId 0:\n    U U D X _\ngpuId 1:\n    U U U\n")
    assert [gpu["nvlinks"] for gpu in collected["nvml"]["gpus"]] == [[True, True, False], [True, True, True]]


def test_the_counters_of_dcgmi_are_those_of_nvml() -> None:
    collected: Any = dcgm_watches.read_nvlink_errors(sample("dcgmi/gcm-nvlink-e-crc12.json").text)
    assert collected["nvml"]["gpus"][0]["nvlink_errors"]["crc_data"] == {"0": 12}


def test_the_counters_of_dcgmi_since_blackwell_are_of_all_links_together() -> None:
    rows = {
        "Malformed Packet Error": "0",
        "Link Integrity Error": "7",
        "Symbol BER": "1.5e-237",
        "Effective BER": "2e-11",
    }
    children = {title: {"value": value} for title, value in rows.items()}
    body = {"body": {"Error Detail": {"children": children}}, "header": ["NVLINK Error Counts", "GPU 3"]}
    results = evaluated({"nvlink.json": json.dumps(body)})
    assert results["gpu.nvlink_errors"].message.splitlines() == [
        "GPU 3: NVLink all: 2e-11 effective BER; expected at most 1e-12",
        "GPU 3: NVLink all: 7 integrity; expected none since boot",
    ]


@pytest.mark.parametrize("file", ["awsome-p4de-diag-r2.txt", "gcm-diag-pass.json"])
def test_a_diagnostic_of_all_gpus_passes(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(sample(f"dcgmi/{file}").text, encoding="utf-8")
    expect(of_type(tmp_path / file, "p4de.24xlarge")["gpu.dcgm_diag"], Verdict.PASS, "")


def test_a_diagnostic_of_fewer_gpus_than_there_should_be_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "dcgmi.txt").write_text(sample("dcgmi/awsome-p4de-diag-r2.txt").text.replace("20b2,", "", 1))
    result = of_type(tmp_path / "dcgmi.txt", "p4de.24xlarge")["gpu.dcgm_diag"]
    expect(result, Verdict.INCOMPLETE, "dcgmi diag ran on 7 GPUs; expected 8")


def test_a_diagnostic_that_did_not_run_says_why() -> None:
    text = "Error: Unable to complete diagnostic for group 2147483647. Return: (-37) : The NVVS diagnostic was killed\n"
    message = "DCGM could not run its diagnostic: Unable to complete diagnostic for group 2147483647. Return: (-37)"
    expect(evaluated({"dcgmi.txt": text})["gpu.dcgm_diag"], Verdict.INCOMPLETE, message)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("exit code: 205", 205),
        ("rc=0", 0),
        ("exit status 1\n\n", 1),
        ("Exit: 3", 3),
        ("exit: -9", -9),
        ("size 8 rc", None),
        ("", None),
    ],
)
def test_an_exit_status_that_somebody_wrote_down_is_read(end: str, status: int | None) -> None:
    assert exit_status(f"output\n{end}") == status


# nccl-tests


def test_a_row_has_both_halves() -> None:
    row = only_log(nccl_tests.read(nccl_log()))["rows"][0]
    half = {"time_us": 43.48, "algbw_gb_per_s": 24.11, "busbw_gb_per_s": 45.21, "wrong": 0, "deviation": None}
    assert row["out_of_place"] == half
    assert (row["size_bytes"], row["count"], row["redop"]) == (1048576, 262144, "sum")
    assert row["in_place"]["busbw_gb_per_s"] == 45.3


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: "])
def test_the_rank_before_a_line_changes_nothing(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in nccl_log().splitlines())
    plain = only_log(nccl_tests.read(nccl_log()))
    assert only_log(nccl_tests.read(text)) == plain


@pytest.mark.parametrize(
    ("file", "rows", "busbw", "average"),
    [
        ("awsome-batch.txt", 32, 483.05, 156.742),
        ("superbench-alltoall.log.txt", 34, 224.31, 58.6481),
        ("superbench-allgather.log.txt", 34, 223.39, 58.2651),
        ("dcgm-mock-fail-oob.txt", 1, 0.0, 0.0),
        ("eks-16gpu-tail-efa.txt", 1, 438.85, 53.2202),
        ("gke-b200-b.txt", 0, None, None),
    ],
)
def test_every_set_of_columns_is_read_by_its_names(
    file: str, rows: int, busbw: float | None, average: float | None
) -> None:
    log = only_log(nccl_tests.read(sample(f"nccl-tests/{file}").text))
    last = log["rows"][-1]["out_of_place"]["busbw_gb_per_s"] if log["rows"] else None
    assert (len(log["rows"]), last, log["avg_busbw_gb_per_s"]) == (rows, busbw, average)


def test_the_run_says_who_took_part() -> None:
    log = only_log(nccl_tests.read(nccl_log()))
    assert (log["version"], log["nccl"], log["collective"]) == ("2.17.6", "2.27.7+cuda12.9", "all_reduce_perf")
    assert (log["ranks"], log["hosts"], log["validation"]) == (16, ["gpu001", "gpu002"], 1)


def test_the_network_is_what_the_ranks_name() -> None:
    network = only_log(nccl_tests.read(sample("nccl-tests/eks-g4dn-2gpu-efa-ncclinfo.txt").text))["network"]
    assert (set(network["networks"]), set(network["providers"]), network["nics"]) == ({"AWS Libfabric"}, {"efa"}, [1])


def test_a_log_of_another_program_shows_the_network_alone() -> None:
    text = "gpu001:7:7 [0] NCCL INFO Using network Socket\nstep 1\n"
    (form,) = [form for form in nccl_tests.FORMS if form.recognises(text)]
    assert set(only_log(form.read(text))) == {"network"}


def test_of_several_tables_every_row_counts_and_the_worst_sum() -> None:
    text = nccl_log() + nccl_log(summary="# Out of bounds values : 2 FAILED\n") + nccl_log()
    log = only_log(nccl_tests.read(text))
    assert len(log["rows"]) == 3 * len(NCCL_ROWS.splitlines())
    assert (log["out_of_bounds"], log["out_of_bounds_word"]) == (2, "FAILED")


# nccom-test


@pytest.mark.parametrize(
    ("file", "unit", "algbw"),
    [
        ("neuron-sdk-01-L28.txt", "GiB/s", 43.69),  # 33554432 bytes in 768 µs
        ("neuron-sdk-04-L619.txt", "GiB/s", 56.73),
        ("neuron-sdk-10-L752.txt", "GB/s", 55.41),
        ("neuron-sdk-08-L690.txt", "GB/s", 35.34),
    ],
)
def test_what_a_version_means_by_gb_is_seen_in_its_sizes_and_times(file: str, unit: str, algbw: float) -> None:
    log = only_log(nccom.read_table(sample(f"nccom-test/{file}").text))
    assert (log["unit"], round(log["rows"][-1]["algbw_gb_per_s"], 2)) == (unit, algbw)


def test_numbers_too_small_to_show_the_unit_stay_as_they_are() -> None:
    text = "size(B) count(elems) type time(us) algbw(GB/s) busbw(GB/s)\n 8 2 fp32 520 0.01 0.02\n"
    log = only_log(nccom.read_table(text))
    assert (log["unit"], log["rows"][0]["busbw_gb_per_s"]) == ("", 0.02)


def test_the_json_report_has_the_same_rows() -> None:
    row = {"size(B)": 524288, "count(elems)": 131072, "type": "fp32", "time:avg(us)": 23.11}
    text = json.dumps({"results": [{**row, "algbw(GB/s)": 22.6888, "busbw(GB/s)": 21.9798}]})
    log = only_log(nccom.read_json(text))
    assert log["rows"][0] == {
        "size_bytes": 524288,
        "count": 131072,
        "type": "fp32",
        "time_us": 23.11,
        "algbw_gb_per_s": 22.6888,
        "busbw_gb_per_s": 21.9798,
    }


def test_an_error_of_the_runtime_is_a_problem() -> None:
    text = f"{nccom_log()}2026-Jan-01 ERROR NRT_TIMEOUT on nd 3\n"
    assert only_log(nccom.read_table(text))["problems"] == ["2026-Jan-01 ERROR NRT_TIMEOUT on nd 3"]


@pytest.mark.parametrize(
    ("warned", "after"),
    [
        ("[4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.2.2.2<5> with status=12 opcode=0", True),
        ("[2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'", True),
        ("[2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'", False),
        ("[2] NCCL WARN Error: network not found.", False),
    ],
)
def test_a_warning_of_nccl_is_quoted_where_nothing_says_what_network_it_used(warned: str, after: bool) -> None:
    warning = warned.partition("NCCL WARN ")[2]
    text = f"node23:12098:12141 {warned}\n" + "node23:12098:12141 [2] NCCL INFO init.cc:1196 -> 1\n" * after
    expect(evaluated({"nccl.log": text})["network.nccl_transport"], Verdict.INCOMPLETE, f"(NCCL WARN {warning})")
