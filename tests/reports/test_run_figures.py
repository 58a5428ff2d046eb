"""A training run's figures on the page: the job, step durations, and utilization of nodes."""

from __future__ import annotations

from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.rules.steps import StepTime
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import GPU, Sample, Samples
from clusterproof.reports.document.over_time import band_section
from clusterproof.reports.document.run_figures import step_figures, summary, usage_figures
from tests.reports.page import Page

BEGAN_S = 1_640_485_617.0  # 2021-12-26 02:26:57


def texts(html: str) -> str:
    return Page(html).text


def job() -> TrainingRun:
    """A job as long as the one in SageMaker's published report: 1,802 s, of which its steps take 1,436."""
    data = RunData()
    step = Step(Position(0), 1, 30.0, {"init": 30.0, "forward": 0.0})
    data.add([step, *(Step(Position(0), number, 0.68, {"forward": 0.5}) for number in range(2, 2112))], "steps")
    data.add((Sample("algo-1", GPU, "gpu0", BEGAN_S + at, 50.0 + at % 50) for at in range(0, 1802, 5)), "samples")
    return TrainingRun("job", data)


def test_the_job_says_when_it_ran_how_long_it_began_and_what_its_steps_took() -> None:
    text = texts(summary(job()))
    for expected in ("2021-12-26 02:26:55 UTC", "sampled for30.1 min", "steps2,111", "start, each rank30 s", "1 start"):
        assert expected in text


def test_steps_have_their_percentiles_each_line_weighed_by_the_steps_that_it_stands_for() -> None:
    series = [StepTime(number, 1.0 + number / 100) for number in range(1, 100)] + [StepTime(199, 5.0, 100)]
    text = texts(step_figures(series))
    assert text.startswith("stepsmeanmaxp99p95p50p5min199")
    assert text.partition("199")[2].startswith("3.26 s5 s5 s5 s5 s1.1 s1.01 s")


def test_a_histogram_leaves_out_the_few_longest_steps_and_says_how_many_they_are() -> None:
    series = [StepTime(number, 1.0 + (number % 7) / 10) for number in range(1, 1000)] + [StepTime(1000, 90.0)]
    page = Page(step_figures(series))
    assert page.attributes("aria-label") == ["how many steps take how long, 1 s to 1.6 s; 1 longer"]


def test_steps_that_all_take_as_long_have_no_histogram() -> None:
    assert "<svg" not in step_figures([StepTime(1, 1.0), StepTime(2, 1.0)])


def test_nodes_have_the_percentiles_of_what_was_sampled() -> None:
    text = texts(usage_figures(job().data.samples))
    assert "algo-1gpu%959595705050" in text  # max, p99, p95, p50, p5, min of 50, 55, … 95


def test_a_table_of_many_nodes_says_that_it_has_not_all() -> None:
    data = RunData()
    data.add((Sample(f"gpu{node:03}", GPU, "gpu0", 5.0 * node, 50.0) for node in range(100)), "samples")
    text = texts(usage_figures(data.samples))
    assert "The first 32 of 100 nodes." in text
    assert "gpu031" in text
    assert "gpu032" not in text


def test_what_was_not_recorded_takes_no_room() -> None:
    nothing = TrainingRun("nothing", RunData())
    assert (summary(nothing), step_figures([]), usage_figures(nothing.data.samples)) == ("", "", "")


def test_gpus_far_idler_than_most_that_have_no_line_are_counted() -> None:
    samples = Samples()
    for gpu in range(100):
        samples.add(Sample(f"gpu{gpu // 8:03}", GPU, f"gpu{gpu % 8}", 1e9, 20.0 if gpu < 20 else 95.0))
    assert "and for the 16 idlest of 20 GPUs that are far idler than most" in band_section(samples)
