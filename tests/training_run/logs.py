"""Logs of Megatron-LM and torchtitan, line by line."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of

# Lines as epfLLM/Megatron-LLM#11 and awsome-distributed-training quote them.
MEGATRON = (
    "time to initialize megatron (seconds): 71.935\n"
    "[after megatron is initialized] datetime: 2024-07-15 15:24:49\n"
    "(min, max) time across ranks (ms):\n"
    "    model-and-optimizer-setup ......................: (2713.31, 2713.34)\n"
)
SAVED = (
    "0: saving checkpoint at iteration       1 to /fsx/checkpoints\n"
    "1: (min, max) time across ranks (ms):\n"
    "1:     save-checkpoint ................................: (8161.24, 8161.82)\n"
)
# pytorch/torchtitan#1287 and #3393


def megatron(step: int, ms: float, prefix: str = "1: ") -> str:
    return (
        f"{prefix}iteration {step:8d}/  508626 | consumed samples:          288 | "
        f"elapsed time per iteration (ms): {ms:.1f} | learning rate: 0.000E+00 | global batch size:   288 | "
        "lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 |\n"
    )


def titan(step: int, second: float, *, prefix: str = "[rank0]:", colour: str = "") -> str:
    time = f"2025-06-16 22:{int(second) // 60:02}:{int(second) % 60:02},{round(second % 1 * 1000):03}"
    return (
        f"{prefix}[titan] {time} - root - INFO - {colour}step: {step:3d}  loss:  6.0388  memory: 49.66GiB(52.28%)"
        "  tps: 5,593  tflops: 323.92  mfu: 32.75%\n"
    )


def deepspeed(step: int, second: float) -> str:
    """The two lines of a printed step."""
    time = f"[2024-04-21 02:{int(second) // 60:02}:{int(second) % 60:02},{round(second % 1 * 1000):03}]"
    return (
        f"{time} [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1.5e-07, 1.5e-07], mom=[0.9]\n"
        f"{time} [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, "
        "RunningAvgSamplesPerSec=74.68, CurrSamplesPerSec=74.68, MemAllocated=4.75GB, MaxMemAllocated=15.59GB\n"
    )


def breakdown(forward_ms: float) -> str:
    """The output of `wall_clock_breakdown` for a step: first its passes, then the whole."""
    logged = "[2024-04-21 02:45:40,723] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
    return (
        f"{logged}fwd_microstep: 9.99 | bwd_microstep: 11249.42 | bwd_inner_microstep: 10520.18 | step_microstep: 8\n"
        f"{logged}fwd: {forward_ms:.2f} | bwd: 600.00 | bwd_inner: 400.00 | bwd_allreduce: 200.00 | step: 100.00\n"
    )


def read(folder: Path, text: str | bytes) -> TrainingRun:
    (folder / "train.log").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run([str(folder / "train.log")])


def finite(folder: Path, *texts: str, names: tuple[str, ...] = ()) -> Result:
    """The result of `run.loss_finite` on these files."""
    for number, text in enumerate(texts):
        path = folder / (names[number] if names else f"{number}.log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return result_of("run.loss_finite", read_run([str(folder)]))


def lasting(run: TrainingRun, rank: int = 0) -> dict[int, float]:
    return {step: round(seconds, 3) for step, (seconds, _) in run.data.steps[rank].items()}


# As transformers 4.44 and 5.24 print with tqdm 4.70: the bar, then a line over it, then the bar again.
def hugging_face(epoch: float, loss: object = 2.31, norm: object = 0.9) -> str:
    """A training line; None: a norm that is not printed."""
    values = {"loss": loss} | ({} if norm is None else {"grad_norm": norm}) | {"learning_rate": 1e-05, "epoch": epoch}
    return f"\r{'':48}\r{values}\n"


def bar(step: int, of: int, elapsed_s: float, *, is_nested: bool = False) -> str:
    """One drawing of the training bar, or of one below it."""
    minutes, second = divmod(int(elapsed_s), 60)
    hours, minute = divmod(minutes, 60)
    time = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"
    rate = "1.20s/it" if step else "?it/s"
    shown = (
        f"{100 * step // of:3d}%|{'█' * (10 * step // of):10}| {step}/{of} [{time}<{'12:31' if step else '?'},  {rate}]"
    )
    return f"\n\r{shown}\x1b[A" if is_nested else f"\r{shown}"
