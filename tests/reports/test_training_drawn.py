"""The training run section: its drawings and words, and that it stays small for any run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run import KERNEL, OPERATOR, Operation, Position, Step, TimeSpent
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import CPU, GPU, MEMORY, Sample
from clusterproof.reports.document.training import training_section
from clusterproof.reports.formats.html import document
from tests.reports.page import Page
from tests.reports.reported import result, run_of
from tests.reports.sections import LATE, LONG, training_run

MOST = 600_000  # maximum characters of the section


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(section(training_run()))


def section(run: TrainingRun) -> str:
    drawn = training_section(run)
    return drawn.html if drawn else ""


def labels(page: Page) -> str:
    return "\n".join(page.attributes("aria-label"))


def run_with(*facts: object, name: str = "x") -> TrainingRun:
    data = RunData()
    data.add(facts, "made up")  # type: ignore[arg-type]
    return TrainingRun(name, data)


@pytest.mark.long
def test_time_is_shown_in_phases_that_make_up_the_whole(page: Page) -> None:
    shares = re.search(r"Of the time of all ranks: (.*)", labels(page))
    assert shares
    shares_of_time = {share.split()[0]: float(share.split()[1]) for share in shares[1].split(", ")}
    assert list(shares_of_time) == ["compute", "communication", "data", "checkpoint", "other"]
    assert sum(shares_of_time.values()) == pytest.approx(100, abs=0.3)
    assert shares_of_time["communication"] == pytest.approx(100 * 0.2 / 1.05, abs=1)


@pytest.mark.long
def test_long_steps_are_marked_and_what_took_longer_in_them_is_named(page: Page) -> None:
    assert "60 steps, usually 1 s, at most 1.8 s, 2 far longer" in labels(page)
    for step in LONG:
        assert f"{step}1.8 s1.8data +800 ms (rank {LATE})" in page.text


def test_the_node_that_waits_for_storage_has_a_line_of_its_own_beside_the_middle_one() -> None:
    waits = {"gpu001": 2.0, "gpu002": 3.0, "gpu003": 60.0}
    run = run_with(*(Sample(node, "io wait", "", 10.0 * at, of) for node, of in waits.items() for at in range(30)))
    drawn = Page(section(run))
    expected = "CPUs that wait for storage: 3 nodes, median 3 % on average; far from it gpu003 60 % on average"
    assert expected in labels(drawn)
    assert section(run).count('class="line ') == 2


def test_it_is_said_how_many_more_nodes_are_far_from_the_middle_one() -> None:
    waits = {f"gpu{number:03}": 60.0 + number if number > 6 else 2.0 for number in range(1, 12)}
    run = run_with(*(Sample(node, "io wait", "", 10.0 * at, of) for node, of in waits.items() for at in range(30)))
    assert "; far from it gpu011 71 % on average; gpu010 70 % on average; gpu009 69 % on average; and 2 more" in labels(
        Page(section(run))
    )


def test_network_traffic_is_drawn_on_the_scale_of_its_own_largest_value() -> None:
    run = run_with(*(Sample("gpu001", "network", "", 10.0 * at, 1_250.0) for at in range(30)))
    assert "network traffic: 1 node, median 1250 MB/s on average" in labels(Page(section(run)))
    assert "dotted: 1250 MB/s" in section(run)


@pytest.mark.long
def test_each_rule_says_how_often_it_triggered_over_how_much_and_by_which_number() -> None:
    of_run = {"subject": "run", "subsystem": "run"}
    results = [
        result("run.init_time", "x", Verdict.PASS, **of_run),
        result("run.step_outliers", "x", Verdict.CONCERN, "2 of 60 steps", **of_run),
        result("run.slow_rank", "x", Verdict.FAIL, "1.40", **of_run, devices=("rank 12",)),
        result("run.loss_finite", "x", Verdict.INCOMPLETE, **of_run),
    ]
    compared = {"run.slow_rank": ["run.slow_rank_fail"], "run.step_outliers": ["run.step_outliers_lost_percent"]}
    drawn = training_section(training_run(), results, compared)
    assert drawn
    rules = re.sub(r"<[^>]+>", "|", drawn.html.partition("how often each triggered")[2].partition("</details>")[0])
    rows = [[cell for cell in row.split("|") if cell] for row in rules.split("||||") if "run." in row]
    texts = [" ".join(row) for row in rows]
    assert re.match(r".*run.slow_rank\) fail 1 time 32 ranks .*run.slow_rank_fail.* Do something.", texts[0])
    assert re.match(r".*run.step_outliers\) concern 2 times 60 steps .*run.step_outliers_lost_percent", texts[1])
    assert re.match(r".*run.init_time\) pass 0 times 60 steps", texts[2])
    assert len(texts) == 3


@pytest.mark.parametrize("sampled", [(), (CPU,), (CPU, MEMORY)])
def test_a_rule_that_traces_stand_in_for_samples_of_is_over_their_ranks(sampled: Sequence[str]) -> None:
    steps = [Step(Position(rank), step, 1.0) for step in range(30) for rank in range(4)]
    run = run_with(*steps, *(Sample("gpu001", metric, "", 10.0 * at, 50.0) for metric in sampled for at in range(77)))
    drawn = training_section(
        run, [result("run.gpu_busy", "x", Verdict.CONCERN, "55 %", subject="run", subsystem="run")]
    )
    assert drawn
    assert "<td>concern</td><td>1 time</td><td>4 ranks</td>" in drawn.html


def test_ranks_stand_side_by_side_and_the_slow_one_is_named_with_its_gpu(page: Page) -> None:
    assert "32 ranks; the slowest, rank 12, computes 1.40 times as long as the others of its stage" in labels(page)
    assert [title for title in page.attributes("title") if title.startswith("rank 12 ")] == [
        "rank 12 on gpu001, GPU 4: 1.40"
    ]
    assert len([name for name in page.attributes("title") if name.startswith("rank ")]) == 32


def test_gpus_are_bands_over_time_and_the_idle_one_is_said_in_words(page: Page) -> None:
    assert "how busy 32 GPUs are over time; the idlest, gpu001 gpu2, 39 % on average" in labels(page)
    assert "gpu001 gpu2: 39 % on average" in page.text


def test_memory_is_shown_with_its_trend(page: Page) -> None:
    assert "memory of 32 GPUs, at most 90 %, the 8 that use most in the end" in labels(page)
    assert "dashed: trend of gpu002 gpu1" in page.text
    assert re.search(r"gpu002 gpu175\.\d %62\.\d %89\.\d %\+30\.\d\d", page.text)


@pytest.mark.parametrize("every_s", [1.0, 5.0, 10.0, 10.3, 30.0, 60.0, 61.5])
def test_what_was_sampled_at_any_interval_is_drawn_without_holes(every_s: float) -> None:
    samples = (Sample("gpu001", metric, "gpu0", every_s * at, 50.0) for at in range(120) for metric in (GPU, MEMORY))
    html = section(run_with(*samples))
    (line,) = re.findall(r'class="line [^>]* d="([^"]*)"', html)
    assert line.count("M") == 1
    assert line.count("L") > 20
    (band,) = re.findall(r'path class="half" d="([^"]*)"', html)
    assert band.count("M") == 1


def test_what_is_sampled_more_rarely_than_the_rest_is_drawn_without_holes() -> None:
    every_s = {"gpu0": 10, "gpu1": 30, "gpu2": 30}
    samples = [
        Sample("gpu001", metric, gpu, time_s, 50.0)
        for gpu, apart in every_s.items()
        for time_s in range(0, 3600, apart)
        for metric in (GPU, MEMORY)
    ]
    html = section(run_with(*samples, Sample("gpu001", MEMORY, "gpu3", 0.0, 9.0), Sample("gpu001", GPU, "gpu3", 0, 60)))
    lines = re.findall(r'class="line [^>]* d="([^"]*)"', html)
    assert [line.count("M") for line in lines] == [1, 1, 1, 1]
    assert [line.count("L") > 20 for line in lines] == [True, True, True, False]
    assert [band.count("M") for band in re.findall(r'path class="half" d="([^"]*)"', html)] == [1, 1, 1, 1]


@pytest.mark.parametrize(("every_s", "count"), [(3600, 4), (600, 10), (600, 100), (30, 400), (10, 2_000), (1_000, 2)])
def test_the_figures_of_memory_are_by_the_times_of_its_samples(every_s: int, count: int) -> None:
    samples = [Sample("gpu001", MEMORY, "gpu0", every_s * at, 20 + every_s * at / 360) for at in range(count)]
    samples = [sample for sample in samples if sample.percent <= 100]
    tenth = max(1, len(samples) // 10)
    begin, mean, end = (
        fmean(sample.percent for sample in some) for some in (samples[:tenth], samples, samples[-tenth:])
    )
    figures = Page(section(run_with(*samples))).text.partition("points an hour")[2]
    assert figures.startswith(f"gpu001 gpu0{mean:.1f} %{begin:.1f} %{end:.1f} %+10.00")


def test_a_sample_that_stands_alone_is_drawn_and_a_gap_stays_one() -> None:
    times = [10.0 * at for at in range(60)] + [10_000.0, 30_000.0]
    html = section(run_with(*(Sample("gpu001", MEMORY, "gpu0", time_s, 50.0) for time_s in times)))
    (line,) = re.findall(r'class="line [^>]* d="([^"]*)"', html)
    assert re.fullmatch(r"M0\.0 45\.0(L[\d.]+ 45\.0)+M200\.\d 45\.0h3M597\.0 45\.0h3", line)


def test_kernels_and_operators_are_sorted_by_their_time(page: Page) -> None:
    at = [page.text.index(name) for name in ("ncclDevKernel", "cutlass::Kernel2", "triton_poi", "aten::mm")]
    assert at == sorted(at)


def test_what_no_file_has_is_not_drawn() -> None:
    assert section(run_with()) == ""
    only_compute = [Operation(Position(rank), step, "forward", 1.0) for step in range(30) for rank in range(4)]
    html = section(run_with(*only_compute))
    assert "Ranks side by side" in html
    assert not any(title in html for title in ("<h3>Steps", "How busy", "GPU memory", "Kernels"))


def test_ranks_of_which_only_steps_are_known_are_compared_by_those() -> None:
    steps = [Step(Position(rank), step, 1.2 if rank == 3 else 1.0) for step in range(30) for rank in range(8)]
    assert "8 ranks; the slowest, rank 3, takes for a step 1.20 times as long as all ranks" in section(run_with(*steps))


def test_names_are_text_whatever_they_are() -> None:
    evil = "<script>alert(1)</script>\u202e\x1b[2J"
    facts = (
        TimeSpent(0, KERNEL, evil, 1.0, 1),
        TimeSpent(0, OPERATOR, evil, 1.0, 1),
        *(Sample(evil, metric, evil, 10.0 * at, 50.0) for at in range(99) for metric in (GPU, MEMORY)),
        *(Step(Position(rank), step, 1.0, {evil + "data": 0.1}) for step in range(30) for rank in range(4)),
    )
    html = document(run_of([result("run.slow_rank", "x")], training=run_with(*facts, name=evil)))
    assert "<script>alert" not in html
    assert not re.search("[\u202e\x1b]", html)


@pytest.mark.long
def test_a_thousand_nodes_five_thousand_ranks_and_a_hundred_thousand_steps_take_no_more_room() -> None:
    samples = [
        Sample(f"node{node}", metric, f"gpu{gpu}", 10.0 * at, float((node * 7 + gpu * 13 + at * 29) % 101))
        for node in range(200)
        for gpu in range(8)
        for at in range(20)
        for metric in (GPU, MEMORY)
    ]
    ranks = [
        Step(Position(rank), step, 1.0 + rank % 7, {"forward": 1.0}) for step in range(25) for rank in range(5_000)
    ]
    steps = [Step(Position(0), step, 1.0 + (step * 7919 % 13) / 3) for step in range(100_000)]
    html = section(run_with(*samples, *ranks, *steps))
    assert len(html) < MOST
    assert "5 of them to a cell" in html
    assert "1,600 GPUs of 200 nodes, a line for each node" in html


@pytest.mark.long
def test_the_section_is_part_of_the_page_and_only_where_there_is_a_run() -> None:
    page = Page(document(run_of([result("run.slow_rank", "llama")], training=training_run())))
    assert "#training" in page.attributes("href")
    assert "#training" not in Page(document(run_of([result("gpu.count", "gpu001")]))).attributes("href")
