"""What looks like a job's end is none where its output goes on with steps, in each form that trainers write."""

from __future__ import annotations

import pytest

from tests.case.output_lines import OOM, read

pytestmark = pytest.mark.any_user

NO_MODULE = "ModuleNotFoundError: No module named 'apex'\n"


def steps(*entries: str) -> str:
    """Lines of steps, each by a rank as `RANK:STEP`, or unattributed as `STEP`."""
    of_ranks = (entry.rpartition(":") for entry in entries)
    return "".join(f"{f'[rank{rank}]: ' if rank else ''}iteration {step}/90 | loss 2\n" for rank, _, step in of_ranks)


def test_what_looked_like_an_end_was_none_where_the_job_made_further_steps() -> None:
    job_output = read(f"{NO_MODULE}{steps('1', '2', '3')}")
    assert (job_output.events, [event.sign for event in job_output.outlived]) == ((), ["exception"])
    assert len(read(f"{steps('1', '2', '3')}{NO_MODULE}").events) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("0:99",), ("0:100", "1:100", "2:100", "4:100")),  # one step, printed by four ranks
        (("3:99",), ("0:100", "0:101", "0:102", "0:103")),  # the rank itself prints no more
        ((), ("0:100", "0:101", "0:102", "1:100")),  # not all ranks that print steps continued
        ((), ("100", "100", "100", "100")),
        ((), ("100", "101")),
    ],
)
def test_steps_of_others_do_not_take_back_a_failure(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    job_output = read(f"{steps(*before)}[rank3]: {OOM}\n{steps(*after)}")
    assert ([event.rank for event in job_output.events], job_output.outlived) == ([3], ())


@pytest.mark.parametrize(
    "after", [("3:100", "3:101", "3:102"), ("0:100", "0:101", "1:100", "1:101", "0:102", "1:102"), ("7", "8", "9")]
)
def test_a_failure_is_outlived_by_the_steps_of_its_rank_or_of_all(after: tuple[str, ...]) -> None:
    job_output = read(f"[rank3]: {OOM}\n{steps(*after)}")
    assert (job_output.events, [(event.rank, event.count) for event in job_output.outlived]) == ((), [(3, 1)])


STEPS_OF_TRAINERS = {
    "Megatron-LM": " iteration {step:8d}/  500000 | consumed samples: 1024 |",
    "tqdm": "  5%|#         | {step}/2724 [4:48:39<95:46:57, 132.93s/it]",
    "a dict of a callback": "{{'loss': 1.6, 'step': {step}, 'epoch': 0.1}}",
    "JSON": '{{"global_step": {step}, "loss": 1.6}}',
    "torchvision": "Epoch: [0][ {step}/5005]  Time  0.312",
    "mmengine": "Epoch [1][{step}/2321]  lr: 1e-3",
    "timm": "Train: 0 [  {step}/1251 (  4%)]  Loss: 6.9",
}


@pytest.mark.parametrize("form", STEPS_OF_TRAINERS.values(), ids=STEPS_OF_TRAINERS)
def test_steps_are_seen_as_trainers_write_them(form: str) -> None:
    lines = "\n".join(form.format(step=step) for step in (130, 140, 150))
    job_output = read(f"{OOM}\n{lines}\n")
    assert (job_output.events, [event.sign for event in job_output.outlived]) == ((), ["gpu_memory"])


def test_a_build_that_counts_its_files_makes_no_steps() -> None:
    built = "\n".join(f"[{number}/9] c++ -o {number}.o" for number in range(1, 10))
    assert [event.sign for event in read(f"{OOM}\n{built}\n").events] == ["gpu_memory"]


def test_what_comes_again_after_it_was_outlived_is_another_event() -> None:
    job_output = read(f"{OOM}\n{OOM}\n{steps('1', '2', '3')}{OOM}\n")
    assert [(event.source, event.count) for event in (*job_output.outlived, *job_output.events)] == [
        ("rank.log:1", 2),
        ("rank.log:6", 1),
    ]
