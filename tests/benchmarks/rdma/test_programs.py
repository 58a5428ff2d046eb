"""The command lines of programs that exchange bytes, and how arrival is recognised."""

from __future__ import annotations

import pytest

from clusterproof.plugins.benchmarks.rdma.ports import EFA, INFINIBAND, ROCE
from clusterproof.plugins.benchmarks.rdma.programs import (
    FI_PINGPONG,
    IBV,
    PERFTEST,
    Ended,
    Running,
    common,
    has_arrived,
    have_not_met,
    words,
)

PORT = {"device": "mlx5_3", "port": 1, "gid": None}
EFA_PORT = {**PORT, "device": "rdmap79s0"}
HERE = "10.0.0.1"
ROCE_PORT = {**PORT, "gid": 3}
PINGPONG = (
    "bytes   #sent   #ack     total       time     MB/sec\n64      10      =10      1.2k        0.23s      0.01\n"
)
VERBS = "1280 bytes in 0.00 seconds = 96.60 Mbit/sec\n10 iters in 0.00 seconds = 10.60 usec/iter\n"
LATENCY = " #bytes #iterations    t_min[usec]    t_max[usec]\n 64      10          1.21           2.33         1.25\n"


@pytest.mark.parametrize(
    ("name", "port", "options", "address", "called"),
    [
        (FI_PINGPONG, EFA_PORT, [], "", "-p efa -e rdm -d rdmap79s0-rdm -I 10 -S 64 -B 20001"),
        (FI_PINGPONG, EFA_PORT, ["-p", "tcp"], HERE, f"-e rdm -d rdmap79s0-rdm -I 10 -S 64 -p tcp -P 20001 {HERE}"),
        (IBV, PORT, [], "", "-d mlx5_3 -i 1 -p 20001 -n 10 -s 64"),
        (IBV, ROCE_PORT, [], HERE, f"-d mlx5_3 -i 1 -g 3 -p 20001 -n 10 -s 64 {HERE}"),
        (PERFTEST, ROCE_PORT, ["-m", "512"], HERE, f"-d mlx5_3 -i 1 -x 3 -p 20001 -n 10 -s 64 -F -m 512 {HERE}"),
    ],
)  # fmt: skip
def test_a_program_is_called_for_one_device(
    name: str, port: dict[str, object], options: list[str], address: str, called: str
) -> None:
    assert words("P", name, port, 20001, options, address) == ["P", *called.split()]


@pytest.mark.parametrize(
    ("name", "text", "exit_status", "arrived"),
    [
        (FI_PINGPONG, PINGPONG, 0, True),
        (FI_PINGPONG, PINGPONG.replace("=10", "=9"), 0, False),
        (FI_PINGPONG, PINGPONG.splitlines()[0], 0, False),
        (IBV, VERBS, 0, True),
        (IBV, VERBS, 1, False),
        (IBV, "  local address:  LID 0x0000, QPN 0x000011, PSN 0x4ebf9c\n", 0, False),
        (PERFTEST, LATENCY, 0, True),
        (PERFTEST, LATENCY, None, False),
        (PERFTEST, LATENCY.splitlines()[0], 0, False),
    ],
)
def test_bytes_have_arrived_only_where_the_table_says_so_and_the_program_ended_well(
    name: str, text: str, exit_status: int | None, arrived: bool
) -> None:
    assert has_arrived(name, Ended(exit_status, text)) is arrived


@pytest.mark.parametrize(
    ("fabric", "own", "others", "name"),
    [
        (EFA, [FI_PINGPONG], [FI_PINGPONG, IBV], FI_PINGPONG),
        (INFINIBAND, [IBV, PERFTEST], [PERFTEST], PERFTEST),
        (ROCE, [IBV, PERFTEST], [IBV, PERFTEST], IBV),
        (ROCE, [IBV], [PERFTEST], ""),
        (EFA, [IBV], [IBV], ""),
    ],
)
def test_both_ends_run_the_same_program(fabric: str, own: list[str], others: list[str], name: str) -> None:
    assert common(fabric, dict.fromkeys(own, "P"), dict.fromkeys(others, "P")) == name


def test_a_program_that_hangs_is_ended_with_what_it_has_printed() -> None:
    ended = Running(["/bin/sh", "-c", "echo waiting; exec sleep 600"]).ended(0.5)
    assert (ended.exit, ended.is_refused()) == (None, False)


def test_a_client_whose_server_does_not_listen_yet_is_refused() -> None:
    assert Ended(1, "Couldn't connect to 10.0.0.1:20001\n").is_refused()
    assert not Ended(0, "Connection refused").is_refused()


CLOSED = Ended(103, "[error] util/pingpong.c:568 : ctrl/read: no data or remote connection closed\n")
NOT_THERE = Ended(111, "[error] util/pingpong.c:408 : failed to connect: Connection refused\n")
ADDRESS = Ended(1, "  local address:  LID 0x0000\nclient read: Success\nCouldn't read remote address\n")
TAKEN = Ended(1, "Couldn't listen to port 20001\n")
DEAD = Ended(1, "Failed status transport retry counter exceeded (12) for wr_id 2\n")
KILLED, WELL = Ended(None, ""), Ended(0, "")


@pytest.mark.parametrize(
    ("server", "client", "apart"),
    [
        (CLOSED, NOT_THERE, True),
        (KILLED, NOT_THERE, True),
        (TAKEN, NOT_THERE, True),
        (KILLED, ADDRESS, True),
        (WELL, CLOSED, True),
        (Ended(243, ""), NOT_THERE, True),
        (CLOSED, KILLED, False),
        (DEAD, ADDRESS, False),
        (CLOSED, DEAD, False),
        (KILLED, DEAD, False),
        (KILLED, KILLED, False),
        (Ended(-11, ""), ADDRESS, False),
    ],
)
def test_two_ends_did_not_meet_where_all_that_failed_is_how_they_arrange_an_exchange(
    server: Ended, client: Ended, apart: bool
) -> None:
    assert have_not_met(server, client, is_left=False) is apart


def test_a_client_that_waits_for_a_server_which_has_left_has_not_met_it() -> None:
    assert have_not_met(CLOSED, KILLED, is_left=True)
    assert not have_not_met(DEAD, KILLED, is_left=True)
    assert not have_not_met(WELL, KILLED, is_left=True)
