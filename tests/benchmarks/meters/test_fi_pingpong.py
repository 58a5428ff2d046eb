"""fi_pingpong, on sample output and over this machine's loopback."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clusterproof.plugins.benchmarks.meters import MeterSettings, Output, fi_pingpong
from clusterproof.plugins.benchmarks.meters.selection import METERS
from clusterproof.plugins.evidence.pairs import Failure, Reading
from tests.benchmarks.meters.ends import GB, measured
from tests.testbed.needs import needs_fi_pingpong

# fi_pingpong

TABLE = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
16m     50      =50      1.5g        0.51s   3268.49    5133.02       0.00
"""


def pingpong(text: str, end: int | None = 0, options: str = "", *, sent: Mapping[str, int] | None = None) -> Reading:
    return fi_pingpong.read(MeterSettings(options=options), (Output(text, end, sent or {}),))


def test_the_table_of_fi_pingpong_is_read() -> None:
    read = pingpong(TABLE)
    assert (read.busbw_gb_per_s, read.time_us, read.size_bytes) == (3.26849, 5133.02, 16 * 2**20)
    assert (read.problem, read.is_correct, read.network) == ("", None, "")


def test_the_largest_of_several_sizes_is_taken() -> None:
    small = "64      50      =50      6.2k        0.00s     10.39      24.65       0.04\n"
    head, row = TABLE.splitlines(keepends=True)
    assert pingpong(head + row + small).size_bytes == 16 * 2**20


@pytest.mark.parametrize(
    ("text", "end", "message"),
    [
        (
            "[error] util/pingpong.c:408 : failed to connect: Connection refused\n",
            111,
            "it ended with 111; [error] util/pingpong.c:408 : failed to connect: Connection refused",
        ),
        (
            "fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)\n",
            61,
            "it ended with 61; fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)",
        ),
        (TABLE, None, "it did not end in its time"),
        (TABLE, 1, "it ended with 1"),
        (TABLE.splitlines()[0], 0, "no whole row"),
        (TABLE.replace("=50", "=49"), 0, "no whole row"),
        (TABLE.replace("3268.49", "inf"), 0, "no whole row"),
        (TABLE.replace("3268.49", "0.00"), 0, "it measured 0 MB/s"),
        (TABLE.replace("3268.49", "-1.00"), 0, "it measured -1 MB/s"),
        (TABLE.replace("3268.49", "9" * 18), 0, "it measured 1e+18 MB/s"),
        (TABLE.splitlines()[1], 0, "no whole row"),
    ],
)
def test_what_is_no_whole_run_of_fi_pingpong_is_a_problem(text: str, end: int | None, message: str) -> None:
    read = pingpong(text, end)
    assert read.busbw_gb_per_s is None
    assert read.problem.startswith(message)


def test_a_server_that_serves_another_client_is_no_evidence_against_its_node() -> None:
    refused = pingpong("[error] util/pingpong.c:408 : failed to connect: Connection refused\n", 111)
    assert (refused.culprit, refused.failure) == ("", Failure.NOT_AT_FAULT)


@pytest.mark.parametrize(
    "error",
    [
        "fi_getinfo(): util/pingpong.c:1489, ret=-61 (No data available)\n",
        "fi_cq_readerr: util/pingpong.c:1102, ret=-111 (Connection refused)\n",  # by the peer's device
    ],
)
def test_what_its_devices_say_is_evidence(error: str) -> None:
    assert pingpong(error, 111).failure is None


@pytest.mark.parametrize(
    ("options", "sent", "network"),
    [
        ("-p efa", {}, "efa"),
        ("-pefa", {}, "efa"),
        ("-p efa", {"efa:rdmap0s0": GB}, "efa, 1 device"),
        ("-p efa", {"efa:rdmap0s0": 1000, "net:eth0": 1000}, ""),
        ("-p tcp", {"net:eth0": GB}, "eth0"),
        ("-p tcp", {}, ""),
        ("", {}, ""),
    ],
)
def test_the_network_of_fi_pingpong_is_what_counters_or_efas_own_provider_prove(
    options: str, sent: dict[str, int], network: str
) -> None:
    assert pingpong(TABLE, options=options, sent=sent).network == network


def test_a_provider_that_the_options_name_stands_in_the_place_of_tcp() -> None:
    settings = MeterSettings(options="-p efa")
    for command in (fi_pingpong.server(settings, 5000), fi_pingpong.client(settings, "10.0.0.1", 5000)):
        assert "export FI_EFA_ENABLE_SHM_TRANSFER=0\n" in command
        assert "-e rdm -I 50 -S 16777216 -p efa" in command
        assert "-p tcp" not in command


@needs_fi_pingpong
def test_fi_pingpong_measures_over_loopback_and_its_server_ends() -> None:
    read, outputs = measured(METERS["fi_pingpong"], MeterSettings(size_bytes=2**20, options="-p tcp -I 20"))
    assert read.problem == ""
    assert read.busbw_gb_per_s is not None
    assert read.busbw_gb_per_s > 0
    assert read.size_bytes == 2**20
    assert [output.exit for output in outputs] == [0, 0]


@needs_fi_pingpong
def test_a_provider_that_is_not_there_is_a_problem_of_both_ends() -> None:
    read, _ = measured(METERS["fi_pingpong"], MeterSettings(options="-p nosuch"))
    assert read.busbw_gb_per_s is None
    assert "the server: it ended with 61; fi_getinfo" in read.problem
