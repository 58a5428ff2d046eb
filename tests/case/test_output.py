"""What output lines say: when, of which rank, on which node."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tests.case.output_lines import OOM, read
from tests.untrusted.programs import bounded

pytestmark = pytest.mark.any_user

EIGHT = datetime(2026, 3, 1, 8, tzinfo=timezone.utc).timestamp()
BLOCK = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_08:00:00
  host      : gpu002.cluster.example
  rank      : 13 (local_rank: 5)
  exitcode  : -9 (pid: 4411)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    "line",
    [
        f"2026-03-01 08:00:00,250 {OOM}",
        f"[2026-03-01T08:00:00.250000+00:00] {OOM}",
        f"2026-03-01T10:00:00.25+02:00 {OOM}",
        f"[rank3]:[E301 08:00:00.250000 4120 train.cpp:1] {OOM}",
        f"[W0301 08:00:00.250000 4120 train.cpp:1] {OOM}",
        f"3: 2026/03/01 08:00:00.250 {OOM}",
    ],
)
def test_a_line_has_its_own_time(line: str) -> None:
    (event,) = read(line).events
    assert event.when.begins == pytest.approx(EIGHT + 0.25)
    assert event.words.endswith(OOM)


def test_a_whole_second_is_all_of_it() -> None:
    (event,) = read(f"2026-03-01 08:00:00 {OOM}").events
    assert (event.when.begins, event.when.ends) == (EIGHT, EIGHT + 1)


def test_a_line_without_a_time_is_between_those_around_it() -> None:
    (event,) = read(f"2026-03-01 08:00:00,000 before\n{OOM}\n2026-03-01 08:00:09,000 after").events
    assert (event.when.begins, event.when.ends) == (EIGHT, EIGHT + 9)
    (last,) = read(f"2026-03-01 08:00:00,000 before\n{OOM}").events
    assert (last.when.begins, last.when.ends) == (EIGHT, None)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (f"[rank13]: {OOM}", 13),
        (f"13: {OOM}", 13),
        (f"[1,13]<stderr>: {OOM}", 13),
        (f"[1,13]<stddiag>:{OOM}", 13),
        (f"[1,mpirank:13,algo-2]<stderr>:{OOM}", 13),
        (f"Sun Mar  1 08:00:00 2026[13]<stderr>:{OOM}", 13),
        (f"Sun Mar  1 08:00:00 2026[1,13]<stderr>:{OOM}", 13),
        ("[rank13]: [Rank 1] Watchdog caught collective operation timeout: x ran for 600001 milliseconds before", 13),
        (OOM, None),
    ],
)
def test_the_rank_is_the_global_one(line: str, rank: int | None) -> None:
    assert read(line).events[0].rank == rank


def test_the_label_of_sagemakers_mpirun_says_rank_and_host() -> None:
    job_output = read(
        "[1,mpirank:11,algo-2]<stderr>:Traceback (most recent call last):\n[1,mpirank:11,algo-2]<stderr>:Key"
    )
    (event,) = job_output.events
    assert (event.sign, event.rank, event.node) == ("exception_cut_off", 11, "algo-2")
    assert job_output.nodes_of_ranks == {11: "algo-2"}


def test_the_report_of_a_launcher_says_rank_node_and_time() -> None:
    (event,) = read(BLOCK).events
    assert (event.sign, event.rank, event.node, event.when.begins) == ("killed", 13, "gpu002", EIGHT)


def test_srun_says_which_task_ended_and_not_which_of_many() -> None:
    job_output = read("srun: error: gpu003: task 5: Out Of Memory\nsrun: error: gpu[001-002]: tasks 0-3: Terminated")
    assert [(event.sign, event.rank, event.node) for event in job_output.events] == [
        ("oom_of_step", 5, "gpu003"),
        ("told_to_end", None, ""),
    ]
    assert job_output.nodes_of_ranks == {5: "gpu003"}


MPIRUN = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [{job},{number}]
  Exit code:    1
"""
PRTERUN = "prterun noticed that process rank 17 with PID 3063175 on node gpu005 exited on\nsignal 9 (Killed).\n"
HYDRA = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK {rank} PID 2757067 RUNNING AT gpu003
=   KILLED BY SIGNAL: {signal}
"""


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("srun: error: n3: task 5: Exited with exit code 1\nsrun: error: n1: task 0: Exited with exit code 1", 5),
        ("Failures:\n" + BLOCK.partition("\n")[2].replace("13", "2") + BLOCK, 13),
        ("srun: error: gpu[001-002]: tasks 0-3: Exited with exit code 1", None),
        (f"{MPIRUN.format(job='[16163,1]', number=2)}{MPIRUN.format(job='[16163,1]', number=7)}", 2),
        (MPIRUN.format(job="[16163,0]", number=2), None),  # a daemon
        (MPIRUN.format(job="prterun-gpu013-1009179@1", number=3), 3),  # Open MPI 5
        (MPIRUN.format(job="prterun-gpu013-1009179@0", number=3), None),
        (PRTERUN, 17),
        (f"{HYDRA.format(rank=0, signal='9 (Killed)')}{HYDRA.format(rank=3, signal='11 (Segmentation fault)')}", 3),
        (HYDRA.format(rank=0, signal="9 (Killed)"), None),
        ("=   KILLED BY SIGNAL: 11 (Segmentation fault)", None),
        ("MPI_ABORT was invoked on rank 42 in communicator MPI_COMM_WORLD\nwith errorcode 1.", 42),
        ("MPI_ABORT was invoked on rank 42 in communicator MPI COMMUNICATOR 5 DUP FROM 0\nwith errorcode 1.", 42),
    ],
)
def test_of_whom_a_launcher_tells_first_is_a_lead(text: str, rank: int | None) -> None:
    assert list(read(text).ended) == ([] if rank is None else [rank])


def test_what_mpirun_says_of_a_signal_is_read_though_it_breaks_the_line() -> None:
    job_output = read(PRTERUN)
    assert [event.sign for event in job_output.events] == ["launcher", "killed"]
    assert job_output.nodes_of_ranks == {17: "gpu005"}


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("ERROR: Rank 13, node gpu002.x, device 5, iteration 812: Possible persistent error!", "ranks_differ"),
        (
            "RuntimeError: Rank 13, node gpu002, device 5, iteration 812: Unexpected result nan (found NaN)",
            "not_a_number",
        ),
        (
            "AssertionError: Rank 13: found NaN in local forward loss calculation. Device: 5, node: gpu002",
            "not_a_number",
        ),
    ],
)
def test_the_rank_and_node_whose_result_megatron_doubts_are_known(line: str, sign: str) -> None:
    (event,) = read(line).events
    assert (event.sign, event.rank, event.node) == (sign, 13, "gpu002")


def test_what_nccl_says_places_a_rank() -> None:
    job_output = read(f"gpu007:1:2 [3] NCCL INFO comm 0x55 rank 11 nranks 64 cudaDev 3\n[rank11]: {OOM}")
    assert job_output.nodes_of_ranks == {11: "gpu007"}
    assert job_output.events[0].node == "gpu007"


def test_how_long_a_rank_had_waited_is_read() -> None:
    (event,) = read("Watchdog caught collective operation timeout: x ran for 600500 milliseconds before").events
    assert event.waited_s == 600.5


@pytest.mark.parametrize(
    ("milliseconds", "waited_s"), [("600500", 600.5), ("86400000", 86_400.0), ("999999999999", 0.0)]
)
def test_a_wait_that_is_longer_than_any_timeout_is_not_believed(milliseconds: str, waited_s: float) -> None:
    (event,) = read(
        f"Watchdog caught collective operation timeout: x ran for {milliseconds} milliseconds before"
    ).events
    assert event.waited_s == waited_s


LONG = """
from clusterproof.plugins.case.output import OutputSource
from clusterproof.plugins.case.runs_of_log import read
from clusterproof.plugins.case.clocks import Clock
for line in ("a" * 1999, "a" * 1900 + " NCCL x", "a:1:1 [1] " * 190 + " NCCL "):
    read([line] * 250, OutputSource("x.log"), Clock(2026))
"""


@pytest.mark.long
def test_lines_that_almost_are_nccls_take_no_longer_than_others() -> None:
    assert bounded(LONG, cpu_s=8).returncode == 0


def test_lines_alike_are_counted_not_kept() -> None:
    (event,) = read(f"{OOM}\n" * 1000).events
    assert (event.count, event.source) == (1000, "rank.log:1")


def test_ranks_that_a_desync_names_are_no_cause() -> None:
    job_output = read("  [7] finished collective #182, but didn't join collective #183")
    assert job_output.watchdog.lagging == {7: "finished collective #182, but didn't join collective #183"}
    assert job_output.events == ()


@pytest.mark.parametrize(
    ("line", "sign", "rank"),
    [
        ("Killed", "killed", None),
        ("已杀死", "killed", None),
        ("./job.sh: line 3:  8156 Killed                  python3 main.py", "killed", None),
        ("./job.sh: line 3:  8156 Segmentation fault      (core dumped) python3 main.py", "crashed", None),
        ("./job.sh: line 3:  8156 Aborted                 (core dumped) python3 main.py", "aborted", None),
        ("['python', 'train.py'] exits with return code = -9", "killed", None),
        ("process rank 7 with PID 0 on node gpu004 exited on signal 9 (Killed).", "killed", 7),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL",
            "killed",
            None,
        ),
        ("Exception: process 3 terminated with signal SIGSEGV", "crashed", None),
        ("[rank: 3] Child process with PID 2977 terminated with code -9. Forcefully terminating all", "killed", None),
        ("[rank: 3] Child process with PID 2977 terminated with code -11. Forcefully terminating all", "crashed", None),
        ("[rank: 3] Child process with PID 2977 terminated with code -6. Forcefully terminating all", "aborted", None),
        ("subprocess.CalledProcessError: Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.", "killed", None),
        ("subprocess.CalledProcessError: Command '['python', 't.py']' died with <Signals.SIGBUS: 7>.", "crashed", None),
        ("=   KILLED BY SIGNAL: 11 (Segmentation fault)", "crashed", None),
    ],
)
def test_a_signal_is_known_however_a_shell_or_a_launcher_tells_it(line: str, sign: str, rank: int | None) -> None:
    (event,) = read(line).events
    assert (event.sign, event.rank) == (sign, rank)


@pytest.mark.parametrize("line", ["Killed workers: 0", "the OOM killer", "was not Killed yet"])
def test_a_word_within_a_sentence_is_no_signal(line: str) -> None:
    assert read(line).events == ()


def test_ranks_that_a_launcher_labels_are_known() -> None:
    assert read("1: a\n12: b\nno label\n[1,3]<stderr>: c\n").labelled == {1, 3, 12}
