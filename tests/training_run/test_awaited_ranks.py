"""A run that hangs without a dump: the rank is named whose process behaves differently from all others, which wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.rank_processes import MAX_JOBS, RankLook, RankProcesses, RankSeen, look_of
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.recorded import dumped
from tests.training_run.watched import of_every_gpu, stuck
from tests.training_run.watched_ranks import (
    BEGAN_S,
    COMPUTES,
    JOB,
    READS,
    SLEEPS,
    STARVED,
    STOPPED,
    Doing,
    hanging,
    seen,
    training,
)

CHECK = "run.first_missing"


@pytest.mark.parametrize(
    ("doing", "words"),
    [
        (SLEEPS, "rank 2 is in hrtimer_nanosleep, and others wait in futex_do_wait for 14.8 min (ranks 0, 1, 3 "),
        (STOPPED, "rank 2 is stopped by a signal, and others wait"),
        (COMPUTES, "rank 2 is computing, and others wait"),
        (STARVED, "rank 2 is computing, and others wait"),
        (READS, "rank 2 is in folio_wait_bit_common, and others wait"),
        (None, "rank 2 has ended, and others wait"),
    ],
)
def test_a_rank_is_named_that_does_otherwise_than_all_others_which_wait(doing: Doing | None, words: str) -> None:
    result = result_of(CHECK, seen(hanging(rank2=doing)))
    assert (result.verdict, words in result.message) == (Verdict.CONCERN, True), result.message
    assert "rank 2 is on gpu001" in result.message


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda: seen(hanging()), "ranks 0, 1, 2, 3 wait in futex_do_wait for 14.8 min, and no other rank does other"),
        (lambda: seen(hanging(rank2=SLEEPS), size=8), "4 of 8 ranks were seen: watch all nodes of the job"),
        (lambda: seen(hanging(rank1=SLEEPS, rank2=STOPPED), ranks=8, size=8), "ranks 1, 2 elsewhere"),
        (lambda: seen(hanging(rank1=SLEEPS), ranks=2, size=2), "no file records where ranks wait"),
        (lambda: seen(training), "no file records where ranks wait"),
        (lambda: seen(hanging(rank2=SLEEPS), minutes=14), "no file records where ranks wait"),
        (lambda: seen(lambda _rank, _minute: COMPUTES), "no file records where ranks wait"),
        (lambda: seen(lambda rank, _: SLEEPS if rank == 3 else COMPUTES), "no file records where ranks wait"),
    ],
    ids=[
        "all alike",
        "some unseen",
        "two at once",
        "two ranks",
        "training",
        "short",
        "computing",
        "one of them serves",
    ],
)
def test_nobody_is_named_where_that_does_not_tell(run: Callable[[], TrainingRun], words: str) -> None:
    result = result_of(CHECK, run())
    assert (result.verdict, words in result.message) == (Verdict.INCOMPLETE, True), result.message


def test_a_look_that_comes_while_a_run_is_killed_changes_nothing() -> None:
    run = seen(hanging(rank2=STOPPED))
    for rank, state in enumerate("ZRRS"):
        used = run.data.processes.latest[rank].cpu_s
        run.data.processes.add(RankSeen("gpu001", BEGAN_S + 20 * 60, RankLook(rank, 4, JOB, state, "", used)))
    result = result_of(CHECK, run)
    assert (result.verdict, "rank 2 is stopped by a signal" in result.message) == (Verdict.CONCERN, True), (
        result.message
    )


def test_a_rank_that_computes_between_two_looks_does_not_wait() -> None:
    run = seen(lambda rank, minute: ("S", "futex_do_wait", 0.4 * (minute % 4 == 0)) if rank != 2 else SLEEPS)
    assert result_of(CHECK, run).verdict is Verdict.INCOMPLETE


def test_a_rank_that_changes_what_it_does_is_not_named() -> None:
    run = seen(
        lambda rank, minute: (SLEEPS if minute % 4 else READS) if rank == 2 and minute >= 5 else hanging()(rank, minute)
    )
    result = result_of(CHECK, run)
    assert result.verdict is Verdict.INCOMPLETE
    assert "rank 2 changed meanwhile" in result.message


def test_all_ranks_of_a_node_are_named_together_where_all_others_wait() -> None:
    stopped = {f"rank{rank}": STOPPED for rank in (4, 5, 6, 7)}
    run = seen(hanging(**stopped), ranks=12, size=12, nodes=lambda rank: f"gpu00{rank // 4}")
    result = result_of(CHECK, run)
    assert (result.verdict, "rank 7 is stopped by a signal" in result.message) == (Verdict.CONCERN, True)


@pytest.mark.parametrize("size_of_agents", [3, 12], ids=["pods", "ranks"])
@pytest.mark.parametrize("order", [None, False, True], ids=["at once", "in order", "the last node first"])
def test_a_torchrun_is_not_the_rank_that_has_the_number_of_its_pod(size_of_agents: int, order: bool | None) -> None:
    run = seen(
        hanging(rank6=STOPPED),
        ranks=12,
        size=12,
        nodes=lambda rank: f"gpu00{rank // 4}",
        size_of_agents=size_of_agents,
        by_node=order,
    )
    result = result_of(CHECK, run)
    assert (result.verdict, "rank 6 is stopped by a signal" in result.message) == (Verdict.CONCERN, True), (
        result.message
    )
    assert [run.placements[rank].node for rank in range(12)] == [f"gpu00{rank // 4}" for rank in range(12)]


@pytest.mark.long
def test_ranks_of_nccl_which_compute_while_they_wait_need_their_gpus_to_tell() -> None:
    def doing(rank: int, minute: int) -> Doing:
        return SLEEPS if rank == 2 and minute >= 5 else COMPUTES

    waiting = seen(doing, minutes=40, gpus=stuck)
    busy = seen(doing, minutes=40, gpus=of_every_gpu())
    assert result_of(CHECK, waiting).verdict is Verdict.CONCERN
    assert "and others wait for their GPUs for" in result_of(CHECK, waiting).message
    assert result_of(CHECK, busy).verdict is Verdict.INCOMPLETE


def test_a_rank_that_left_no_dump_is_said_to_be_stopped() -> None:
    run = seen(hanging(rank1=STOPPED))
    run.data.dumps.update(dumped({0: {"1": (91, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}).data.dumps)
    result = result_of(CHECK, run)
    assert (result.verdict, "rank 1 is stopped by a signal" in result.message) == (Verdict.CONCERN, True), (
        result.message
    )


def test_what_a_rank_does_tells_a_program_that_is_stuck_from_one_that_computes() -> None:
    dumps = dumped({0: {"1": (91, 90)}, 1: {"1": (90, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}).data.dumps
    for doing, part in ((SLEEPS, "; rank 1 is in hrtimer_nanosleep"), (COMPUTES, "; rank 1 is computing")):
        run = seen(hanging(rank1=doing))
        run.data.dumps.update(dumps)
        result = result_of(CHECK, run)
        assert (result.verdict, part in result.message) == (Verdict.FAIL, True), result.message


def requeued(earlier: str, later: str, *, size: int) -> RankProcesses:
    """A job of two nodes that began again on others, under its own number; nodes are read one after the other."""
    processes = RankProcesses()
    looks = [RankSeen("gpu001", time_s, RankLook(0, size, JOB, "S", "futex", 0.0)) for time_s in (5000.0, 6000.0)]
    looks += [
        RankSeen(node, time_s + more_s, RankLook(1, of, JOB, "S", "futex", 0.0))
        for node, time_s, of in sorted(((earlier, 1000.0, 4), (later, 5000.0, size)))
        for more_s in (0.0, 1000.0)
    ]
    for look in looks:
        processes.add(look)
    return processes


@pytest.mark.parametrize(("earlier", "later"), [("gpu002", "gpu003"), ("gpu003", "gpu002")])
def test_a_rank_of_a_job_that_began_again_elsewhere_is_where_it_was_seen_last(earlier: str, later: str) -> None:
    processes = requeued(earlier, later, size=2)
    assert (processes.latest[1].node, processes.latest[1].seen_s, processes.latest_size) == (later, 6000.0, 2)


def test_ranks_that_a_job_had_before_it_began_again_with_fewer_have_not_ended_in_it() -> None:
    processes = RankProcesses()
    for time_s, size in ((1000.0, 4), (5000.0, 2), (5010.0, 2)):
        for rank in range(size):
            processes.add(RankSeen("gpu001", time_s, RankLook(rank, size, JOB, "S", "futex", 0.0)))
    assert list(processes.latest) == [0, 1]


def test_the_last_of_many_jobs_are_kept() -> None:
    processes = RankProcesses()
    for job in range(2 * MAX_JOBS):
        processes.add(RankSeen("gpu001", float(job), RankLook(0, 1, str(job), "S", "", 0.0)))
    assert list(processes.jobs) == [str(job) for job in range(MAX_JOBS, 2 * MAX_JOBS)]
    assert processes.latest[0].seen_s == 2 * MAX_JOBS - 1


def test_the_largest_of_parallel_jobs_is_judged() -> None:
    processes = RankProcesses()
    for time_s, job, size in ((0.0, "ended", 8), (100.0, "large", 4), (101.0, "small", 1)):
        for rank in range(size):
            processes.add(RankSeen("gpu001", time_s, RankLook(rank, size, job, "S", "", 0.0)))
    assert (processes.latest_size, len(processes.latest)) == (4, 4)


@pytest.mark.parametrize(
    "row",
    [
        [],
        5,
        [0, 4, "job", "S", "futex"],
        [-1, 4, "job", "S", "", 0],
        [True, 4, "job", "S", "", 0],
        [10**12, 4, "job", "S", "", 0],
        [0, 4, 7, "S", "", 0],
        [0, 4, "job", "S", "", -1],
        [0, 4, "job", "S", "", float("nan")],
    ],
)
def test_what_is_no_look_at_a_rank_is_refused(row: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        look_of(row)


def test_words_of_a_look_are_short_and_printable() -> None:
    look = look_of([0, 4, "x" * 1000, "S\x1b", "\x1b[2J", 1])
    assert look.to_json() == [0, 4, look.job, "S", look.wait, 1.0]
    assert len(look.job) <= 80
    assert look.wait.isprintable()
