"""GPU tools' output is read as printed: nvidia-smi, dcgmi, answers of Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.formats import prometheus
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import CLOCK, GPU, MEMORY, POWER, TENSOR
from tests.training_run.builders import result_of
from tests.training_run.sampled import DCGM_4_DMON

# The columns and units of `nvidia-smi --format=csv`: aristocratos/bpytop#26, with the timestamp that loops ask for.
SMI_HEAD = (
    "timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], "
    "clocks.current.sm [MHz], power.draw [W], enforced.power.limit [W]\n"
)
# nvidia-smi dmon: mozilla/DeepSpeech#178. dcgmi dmon: the GPU utilization that Triton's performance notes quote.
SMI_DMON = (
    "# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk\n# Idx     W     C     %     %     %     %   MHz   MHz\n"
)
DCGM_DMON = (
    "# EntityId      GPUTL       MCUTL  DRAMA  SMACT  SMOCC  TENSO                 PCITX                 PCIRX\n"
)


def read(folder: Path, text: str, name: str = "gpu001.csv") -> TrainingRun:
    (folder / name).write_text(text, encoding="utf-8")
    return read_run([str(folder / name)])


def smi(seconds: int = 600, every: int = 10, busy: int = 97) -> str:
    return SMI_HEAD + "".join(
        f"2026/08/17 10:{second // 60:02}:{second % 60:02}.{gpu:03}, {gpu}, NVIDIA H100 80GB HBM3, {busy - gpu} %, "
        f"40960 MiB, 81920 MiB, 1755 MHz, 350.25 W, 700.00 W\n"
        for second in range(0, seconds, every)
        for gpu in (0, 1)
    )


def means(run: TrainingRun, metric: str) -> dict[tuple[str, str], float]:
    series_of_metric = run.data.samples.of(metric)
    return {key: round(min(stretch.mean for stretch in series.values()), 2) for key, series in series_of_metric.items()}


def test_a_loop_of_nvidia_smi_gives_use_memory_clocks_and_power(tmp_path: Path) -> None:
    run = read(tmp_path, smi())
    assert means(run, GPU) == {("gpu001", "gpu0"): 97, ("gpu001", "gpu1"): 96}
    assert means(run, MEMORY) == {("gpu001", "gpu0"): 50, ("gpu001", "gpu1"): 50}
    assert means(run, CLOCK)["gpu001", "gpu0"] == 1755
    assert means(run, POWER)["gpu001", "gpu0"] == 50.04
    assert result_of("run.gpu_busy", run).verdict.value == "pass"
    assert result_of("run.gpu_busy", read(tmp_path, smi(busy=40))).verdict.value == "concern"


def test_units_that_are_left_out_names_of_columns_that_repeat_and_values_that_are_missing(tmp_path: Path) -> None:
    plain = smi().replace(" %,", ",").replace(" MiB", "").replace(" MHz", "").replace(" W", "")
    assert read(tmp_path, plain).data.samples.series == read(tmp_path, smi()).data.samples.series
    rows = smi().splitlines(keepends=True)
    loop = "".join(f"{rows[0]}{first}{second}" for first, second in zip(rows[1::2], rows[2::2], strict=True))
    assert read(tmp_path, loop).data.samples.series == read(tmp_path, smi()).data.samples.series
    gone = read(tmp_path, smi().replace("97 %", "[N/A]").replace("350.25 W", "[Not Supported]"))
    assert means(gone, GPU) == {("gpu001", "gpu1"): 96}
    assert means(gone, POWER) == {}


def test_gpus_that_no_column_names_are_distinguished_by_their_order(tmp_path: Path) -> None:
    text = "timestamp, utilization.gpu [%]\n" + "".join(
        f"2026/08/17 10:00:{second:02}.000, {90 - gpu} %\n" for second in range(0, 60, 10) for gpu in range(3)
    )
    assert means(read(tmp_path, text), GPU) == {("gpu001", f"gpu{gpu}"): 90 - gpu for gpu in range(3)}


def test_a_file_for_each_node_is_one_run(tmp_path: Path) -> None:
    for node in ("gpu001", "gpu002"):
        (tmp_path / f"{node}.csv").write_text(smi(busy=97 if node == "gpu001" else 60), encoding="utf-8")
    result = result_of("run.load_balance", read_run([str(tmp_path)]))
    assert result.verdict.value == "concern"


def test_dmon_of_dcgm_is_read(tmp_path: Path) -> None:
    rows = "    GPU 2          79          43  0.382  0.652  0.206  0.267             273834455            2258816847\n"
    run = read(tmp_path, (DCGM_DMON + rows * 10) * 40, "gpu007.dmon.txt")
    assert means(run, GPU) == {("gpu007", "gpu2"): 79}
    assert means(run, TENSOR) == {("gpu007", "gpu2"): 26.7}
    assert run.sampled.gpus[0].samples >= 300
    rows = (
        "".join(f"GPU {gpu}     99     0.512  1980   60000  20000  \n" for gpu in range(2)) + "GPU-I 3  N/A N/A 1 2 3\n"
    )
    run = read(tmp_path, (DCGM_4_DMON + rows) * 9, "gpu007.dmon.txt")
    assert means(run, MEMORY) == {("gpu007", "gpu0"): 75, ("gpu007", "gpu1"): 75}
    assert means(run, CLOCK)["gpu007", "gpu1"] == 1980


def test_dmon_of_nvidia_smi_is_read(tmp_path: Path) -> None:
    rows = (
        "    0   111    83    25     7     0     0  4513  1683\n    1   111    84     -     5     0     0  4513  1733\n"
    )
    run = read(tmp_path, SMI_DMON + rows * 20, "gpu007.txt")
    assert means(run, GPU) == {("gpu007", "gpu0"): 25}
    assert means(run, CLOCK) == {("gpu007", "gpu0"): 1683, ("gpu007", "gpu1"): 1733}


@pytest.mark.long
@pytest.mark.parametrize(
    ("violations", "verdict"),
    [("     0      1", "fail"), ("    40      0", "concern"), ("     0      0", "incomplete")],
)
def test_violations_that_dmon_of_nvidia_smi_prints_hold_a_slow_clock_down(
    tmp_path: Path, violations: str, verdict: str
) -> None:
    head = "# gpu    pwr     sm   mclk   pclk  pviol  tviol\n# Idx      W      %    MHz    MHz      %   bool\n"
    rows = "".join(
        f"    {gpu}    650     99   2619   {'1200' + violations if gpu == 3 else '1980      0      0'}\n"
        for gpu in range(8)
    )
    result = result_of("run.slow_clock", read(tmp_path, head + rows * 900, "gpu007.txt"))
    assert (result.verdict.value, "gpu007 gpu3 at 0.61" in result.message) == (verdict, True), result.message


def test_the_end_of_the_step_in_which_dmon_ran_is_no_sample(tmp_path: Path) -> None:
    end = "slurmstepd: error: *** STEP 12.0 ON gpu001 CANCELLED AT 2026-08-17T10:15:00 DUE TO TIME LIMIT ***\n"
    run = read(tmp_path, SMI_DMON + "    0   111    83    25     7     0     0  4513  1683\n" * 99 + end)
    assert means(run, GPU) == {("gpu001", "gpu0"): 25}
    assert run.data.notes[0].startswith("1 line among samples is none (slurmstepd: error: *** STEP 12.0 ON gpu001")


def test_times_of_dmon_count_where_it_prints_them_also_behind_midnight(tmp_path: Path) -> None:
    head = "#Time        gpu    pwr     sm\n#HH:MM:SS    Idx      W      %\n"
    rows = (
        f" {at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}      0     71     50\n"
        for at in range(86_000, 87_000, 10)
    )
    run = read(tmp_path, head + "".join(rows), "gpu007.txt")
    assert (run.sampled.gpus[0].samples, run.sampled.gpus[0].seconds) == (94, 935)


def test_the_engine_s_utilization_counts_with_mig_and_otherwise_the_driver_s(tmp_path: Path) -> None:
    rows = "GPU 0     N/A     0.930\nGPU 1     97     0.930\n"
    run = read(tmp_path, "#Entity   GPUTL   GRACT\nID\n" + rows * 400, "gpu007.txt")
    assert means(run, GPU) == {("gpu007", "gpu0"): 93, ("gpu007", "gpu1"): 97}


def series(metric: str, value: object, begin: int = 1_782_864_000, **labels: str) -> dict[str, Any]:
    """One series, with the labels that dcgm-exporter gives."""
    of = {"gpu": "0", "UUID": "GPU-df2bfa0a", "device": "nvidia0", "Hostname": "k0s-gpu-0", "instance": "10.0.0.9:9400"}
    points = [[begin + 15 * number, str(value)] for number in range(60)]
    return {"metric": {"__name__": metric, **of, **labels}, "values": points}


def answer(many: Iterable[dict[str, Any]]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(many)}})


def test_answers_of_prometheus_are_read_series_by_series(tmp_path: Path) -> None:
    text = answer(
        (
            series("DCGM_FI_DEV_GPU_UTIL", 73.5),
            series("DCGM_FI_DEV_GPU_UTIL", 75, gpu="1"),
            series("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.31),
            series("DCGM_FI_DEV_FB_USED", 60_000),
            series("DCGM_FI_DEV_FB_FREE", 20_000),
            series("DCGM_FI_DEV_GPU_TEMP", 60),
            series("DCGM_FI_DEV_GPU_UTIL", 5, gpu="1", GPU_I_ID="3"),
        )
    )
    run = read(tmp_path, text, "answer.json")
    assert means(run, GPU) == {("k0s-gpu-0", "gpu0"): 73.5, ("k0s-gpu-0", "gpu1"): 75}
    assert means(run, TENSOR) == {("k0s-gpu-0", "gpu0"): 31}
    assert means(run, MEMORY) == {("k0s-gpu-0", "gpu0"): 75}
    assert result_of("run.gpu_busy", run).verdict.value == "pass"


def test_a_gpu_has_one_size_of_memory_though_each_of_its_pods_has_a_series(tmp_path: Path) -> None:
    many = [
        series(f"DCGM_FI_DEV_{what}", value, begin, **pod)
        for begin, pod, used in ((1_782_864_000, {}, 0), (1_782_864_900, {"exported_pod": "llama-worker-0"}, 40_000))
        for what, value in (("GPU_UTIL", used // 500), ("FB_USED", used), ("FB_FREE", 80_000 - used))
    ]  # NVIDIA/dcgm-exporter#237
    run = read(tmp_path, answer(many), "answer.json")
    assert run.sampled.peak_memory == 50


@pytest.mark.parametrize("metric", ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"])
@pytest.mark.parametrize(("bits", "verdict"), [(0x48, "fail"), (0x4, "concern"), (0x1, "pass"), (None, "incomplete")])
def test_what_prometheus_has_of_a_slow_clock_says_what_holds_it(
    tmp_path: Path, metric: str, bits: int | None, verdict: str
) -> None:
    many = [
        series(name, value, gpu=str(gpu))
        for gpu in range(8)
        for name, value in (("DCGM_FI_DEV_GPU_UTIL", 97), ("DCGM_FI_DEV_SM_CLOCK", 1200 if gpu == 3 else 1980))
    ]
    many += [series(metric, bits if gpu == 3 else 0, gpu=str(gpu)) for gpu in range(8) if bits is not None]
    result = result_of("run.slow_clock", read(tmp_path, answer(many), "answer.json"))
    assert result.verdict.value == verdict
    assert verdict == "pass" or "k0s-gpu-0 gpu3 at 0.61 of its peers' clock" in result.message


def test_points_of_a_target_that_has_gone_are_passed_over(tmp_path: Path) -> None:
    of_gpu = series("DCGM_FI_DEV_GPU_UTIL", 80)
    of_gpu["values"][7][1] = "NaN"
    run = read(tmp_path, answer([of_gpu]), "answer.json")
    assert means(run, GPU) == {("k0s-gpu-0", "gpu0"): 80}


def with_glitch(value: float) -> str:
    """As DCGM reports it once in 200,000 samples (NVIDIA/DCGM#199)."""
    of_gpu = series("DCGM_FI_DEV_GPU_UTIL", 80)
    of_gpu["values"][7][1] = str(value)
    return answer([of_gpu, series("DCGM_FI_DEV_GPU_UTIL", 75, gpu="1")])


@pytest.mark.parametrize(
    ("text", "busy", "words"),
    [
        (with_glitch(2619), {80, 75}, "(gpu of gpu0 is 2619; expected 0 to 100)"),
        (with_glitch(-1), {80, 75}, "(gpu of gpu0 is -1; expected 0 to 100)"),
        (smi().replace("97 %", "970 %", 1), {97, 96}, "(gpu of gpu0 is 970; expected 0 to 100)"),
    ],
)
def test_a_value_that_no_gpu_can_have_is_left_out_and_said_and_hides_no_other(
    tmp_path: Path, text: str, busy: set[float], words: str
) -> None:
    run = read(tmp_path, text)
    assert set(means(run, GPU).values()) == busy
    (note,) = run.data.notes
    assert note.startswith("1 sample left out, as it is out of range ")
    assert words in note


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (smi().replace("97 %", "high", 1), "gpu001.csv:2: utilization.gpu is 'high'; expected a number"),
        (smi().replace("2026/08/17", "yesterday", 1), "timestamp is 'yesterday 10:00:00.000'; expected one like 2026/"),
        (smi().replace("2026/08/17", "2026/88/17", 1), "expected a day of the calendar"),
        (smi().replace(" 97 %,", "", 1), "gpu001.csv:2: 8 values; expected 9, as the first line names them"),
        (SMI_DMON + "    0   111    83    25\n    1\n", "gpu001.csv:3: 3 values; expected 8, as the line of names has"),
        (SMI_DMON + "Error: lost contact\n\n", "is no line of a GPU; expected what dcgmi dmon"),
        (answer([{"metric": {"gpu": "0"}, "values": []}]), "event 1: a series without a name, as functions leave them"),
        (answer([series("DCGM_FI_DEV_GPU_UTIL", "much")]), "event 1: a value is 'much'; expected a number"),
        (answer([series("DCGM_FI_DEV_GPU_UTIL", 1)]).replace("matrix", "vector"), "no series over time; expected"),
    ],
)
def test_what_is_wrong_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RunError) as wrong:
        read(tmp_path, text)
    assert words in str(wrong.value)


@pytest.mark.parametrize("text", [smi(), SMI_DMON + "    0   111    83    25     7     0     0  4513  1683\n" * 99])
def test_a_file_that_was_cut_loses_its_tail_only(tmp_path: Path, text: str) -> None:
    run = read(tmp_path, text[:-30])
    assert len(run.data.samples.of(GPU)) >= 1
    assert run.data.notes[0].startswith("cut: ")


def test_more_points_than_there_is_room_for_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_POINTS", 10)
    with pytest.raises(RunError, match="more than 10 points; expected fewer: a larger step"):
        read(tmp_path, answer([series("DCGM_FI_DEV_FB_USED", 1)]), "answer.json")
