"""Jobs that ran on one H200 or H100 and were broken on purpose: the conclusion on each, beside what was done to it.

Four ranks by torchrun, DDP over NCCL 2.28 of PyTorch 2.11. `gpu_jobs.tar.xz` has the output of ranks and torchrun,
steps, dumps of the Flight Recorder, and the node's kernel log, whose UUIDs and serial numbers are blanked. The healthy
jobs' traces are left out.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from clusterproof.plugins.case.advice import Case, opened_case
from clusterproof.plugins.case.folder import collect
from clusterproof.plugins.case.redaction import redacted
from clusterproof.plugins.case.report import paragraph
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.reading import read_run
from tests.training_run.builders import result_of

pytestmark = pytest.mark.any_user

ARCHIVE = Path(__file__).with_name("gpu_jobs.tar.xz")
KERNEL_LOG = "vm-dmesg.txt"
WAITED = "did not come to all_reduce 29 of default_pg, in which ranks 0, 2, 3 waited"


@record
class Truth:
    """The right answer: the cause and the rank, also with the node's kernel log; and words of the conclusion."""

    cause: str
    rank: int | None
    words: str
    with_log: str = ""  # the cause, if that log changes it
    log_words: str = ""


TRUTH = {
    "assert": Truth("code", 1, "an assertion in a kernel of the job failed", log_words="has Xid 43, GPU stopped"),
    "illegal": Truth("code", 1, "read or wrote where it may not", log_words="has Xid 31, GPU memory page fault, for"),
    "misaligned": Truth("code", 1, "read or wrote where it may not", log_words="has Xid 13, Graphics Engine Exception"),
    "trap": Truth(
        "unknown", 1, "which code does as well as hardware", "code", "has Xid 43, GPU stopped processing, for"
    ),
    "segv": Truth("unknown", 3, "a process crashed", "code", "python3 (pid 1136) crashed in libc.so.6"),
    "kill": Truth("unknown", 3, "a process got SIGKILL, whose sender it cannot know"),
    "oom": Truth("resources", 2, "the memory of a GPU was full"),
    "raise": Truth("unknown", 2, "an exception of which no sign says the cause: RuntimeError: shard 00017.bin"),
    "hang": Truth("unknown", 1, f"ranks waited in vain for rank 1; nothing says what kept it. Rank 1 (vm) {WAITED}."),
    "slowkernel": Truth("unknown", 1, f"Rank 1 (vm) {WAITED}."),
    "shape": Truth("code", 1, "rank 1 called all_reduce of 7 Float (hurt, job.py:35), ranks 0, 2, 3 called all_reduce"),
    "other": Truth("code", 1, "rank 1 called all_gather of 1,000 Float (hurt, job.py:36), ranks 0, 2, 3 called"),
    "slow": Truth("stopped", None, "torchrun was told to stop by a signal from outside of it"),
    "train": Truth("unknown", None, "nothing that was read is a known sign"),
}
ON_H100 = {  # without kernel logs
    "duplicate": Truth("code", 3, "two ranks were given the same GPU"),
    "ifname": Truth("code", None, "NCCL_SOCKET_IFNAME names one that this node has not"),
    "nodevice": Truth("unknown", 3, "a rank sees no GPU: by CUDA_VISIBLE_DEVICES"),
    "shm": Truth("resources", 2, "shared memory (/dev/shm) was full"),
    "jax": Truth("resources", None, "the memory of a GPU was full"),
}
MISSING = "rank 1 missing in all_reduce 29 of default_pg (ranks 0, 2, 3 waiting)"
OF_RUNS = {
    "hang": ("run.first_missing", Verdict.FAIL, MISSING),
    "slowkernel": ("run.first_missing", Verdict.FAIL, MISSING),
    "shape": ("run.collectives_match", Verdict.FAIL, "rank 1 called all_reduce of 7 Float (hurt, job.py:35)"),
    "other": ("run.collectives_match", Verdict.FAIL, "rank 1 called all_gather of 1,000 Float (hurt, job.py:36)"),
    "slow": ("run.data_wait", Verdict.CONCERN, "rank 2 waits for data for 10 % of its steps"),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them."""
    folder = tmp_path_factory.mktemp("jobs")
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            content = archive.extractfile(member)
            path = folder / member.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.read() if content else b"")
    return folder


def case_of(folder: Path) -> Case:
    return opened_case(collect(folder))


def test_there_is_a_truth_for_every_job(jobs: Path) -> None:
    assert {path.name for path in jobs.iterdir() if path.is_dir()} == {*TRUTH, *ON_H100}


@pytest.mark.parametrize("name", [*TRUTH, *ON_H100])
def test_a_job_ended_of_what_was_done_to_it(name: str, jobs: Path) -> None:
    case, truth = case_of(jobs / name), {**TRUTH, **ON_H100}[name]
    assert (case.verdict.cause, case.verdict.rank) == (truth.cause, truth.rank)
    assert truth.words in paragraph(case)
    assert case.verdict.nodes == ()


@pytest.mark.parametrize("name", TRUTH)
def test_the_log_of_its_node_bears_that_out_and_blames_no_hardware(name: str, jobs: Path, tmp_path: Path) -> None:
    folder, truth = tmp_path / name, TRUTH[name]
    shutil.copytree(jobs / name, folder)
    shutil.copy(jobs / KERNEL_LOG, folder)
    case = case_of(folder)
    assert (case.verdict.cause, case.verdict.rank) == (truth.with_log or truth.cause, truth.rank)
    assert (truth.log_words or truth.words) in paragraph(case)
    assert "drain" not in case.advice.nodes.values()


@pytest.mark.parametrize(("name", "ranks"), [("hang", [1]), ("slowkernel", [1]), ("shape", [1]), ("other", [])])
def test_without_dumps_its_watchdogs_name_the_rank_that_was_waited_for(
    name: str, ranks: list[int], jobs: Path, tmp_path: Path
) -> None:
    shutil.copytree(jobs / name, tmp_path / name, ignore=shutil.ignore_patterns("nccl_trace*"))
    assert [lead.rank for lead in case_of(tmp_path / name).collected.leads if lead.is_late] == ranks


@pytest.mark.parametrize("name", TRUTH)
def test_no_node_is_called_by_a_name_that_every_machine_has(name: str, jobs: Path) -> None:
    assert "localhost" not in case_of(jobs / name).advice.nodes


@pytest.mark.parametrize("name", OF_RUNS)
def test_the_files_of_its_run_say_which_rank_it_was(name: str, jobs: Path) -> None:
    check, verdict, message = OF_RUNS[name]
    result = result_of(check, read_run([str(jobs / name)]))
    assert (result.verdict, message in result.message) == (verdict, True), result.message


@pytest.mark.parametrize("name", sorted(set(TRUTH) - {"hang", "slowkernel", "shape", "other"}))
def test_no_rank_is_called_missing_or_odd_that_was_not(name: str, jobs: Path) -> None:
    run = read_run([str(jobs / name)])
    for check in ("run.first_missing", "run.collectives_match"):
        assert result_of(check, run).verdict is not Verdict.FAIL


@pytest.mark.parametrize("name", ["hang", "shape"])
def test_redacted_a_case_has_no_group_no_file_and_no_line_of_its_program(name: str, jobs: Path) -> None:
    text = paragraph(opened_case(redacted(collect(jobs / name))))
    assert [word for word in ("default_pg", "job.py", "hurt", "vm", "513,000") if word in text] == []


def test_steps_of_the_warm_up_say_nothing_of_a_wait_for_data(jobs: Path) -> None:
    result = result_of("run.data_wait", read_run([str(jobs / "hang")]))
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message.startswith("12 steps, of which the first 5 are the run's warm-up; expected at least 25")


def test_what_a_case_leaves_to_the_evaluation_of_the_run_is_one_line(jobs: Path) -> None:
    missing = case_of(jobs / "hang").collected.missing
    files = ", ".join(f"steps.{rank}.jsonl" for rank in range(4))
    assert f"clusterproof --run {jobs / 'hang'} evaluates {files}" in missing
    assert [gap for gap in missing if "form is not known" in gap] == []
