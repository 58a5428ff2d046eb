"""Logs of frameworks that print a line for each step, or several: one table row per framework.

A row says how a line is recognized, and where it has the step, its duration, the wait for data, the loss and the
gradient norm. Each format is from a real log or the program's own source, given in `source`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import Position, Step
from clusterproof.plugins.training_run.files import integer, seconds
from clusterproof.plugins.training_run.formats.printed import NUMBER, VALUE, Repeated, value_of
from clusterproof.plugins.training_run.formats.printer import Printer, printer
from clusterproof.plugins.training_run.losses import Loss

MS = 1e-3  # s
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6}  # suffixes of abbreviated numbers
CRITIC = "the critic"
_NUMPY = r"(?:np\.float(?:32|64)\()?"  # as printed for numpy numbers


@record
class Framework:
    """How a framework prints steps; `unit` is that of its durations in seconds, 0 for a rate of steps per second.

    If steps restart in each epoch, `step` has the group `epoch` if epochs count from 1, and `past` if from 0.
    """

    name: str
    source: str
    word: str  # occurs in each step line
    step: re.Pattern[str]  # the step; or `epoch`, `step` and steps per epoch
    loss: re.Pattern[str]
    norm: re.Pattern[str] | None = None
    duration: re.Pattern[str] | None = None
    unit: float = 1.0
    data: re.Pattern[str] | None = None
    is_mean: bool = False  # whether a line stands for all steps since the previous one
    late: tuple[str, ...] = ()  # unique texts, if the first step may come late
    has_block: bool = False  # whether the rest is on the following lines
    may_grow: bool = False  # whether its loss is from reinforcement learning
    other: str = ""  # occurs in lines about other work, whose time the next step includes
    critic: tuple[re.Pattern[str], re.Pattern[str]] | None = None  # loss and norm of a second model, if it trains one


FRAMEWORKS = (
    Framework(
        "nanoGPT",
        "karpathy/nanoGPT train.py",
        "iter ",
        re.compile(r"\biter ([0-9]{1,18}): loss "),
        re.compile(rf": loss{VALUE}", re.IGNORECASE),
        duration=re.compile(rf", time {NUMBER}ms\b"),
        unit=MS,
        other=": train loss ",
    ),
    Framework(
        "litgpt",
        "Lightning-AI/litgpt finetune/lora.py, #1042, #1607; the time is that of one of the batches of a step",
        "iter time: ",
        re.compile(r"\biter [0-9]{1,18} (?:\| )?step ([0-9]{1,18})[ :]"),
        re.compile(rf"\bloss(?: train)?:?{VALUE}", re.IGNORECASE),
        late=("ms (step)", "ms (optimizer.step)"),
    ),
    Framework(
        "DeepSpeed's pipeline engine",
        "deepspeedai/DeepSpeed runtime/pipe/engine.py; DeepSpeed's other lines have the time",
        "iter time (s): ",
        re.compile(r"\bsteps: ([0-9]{1,18}) loss: "),
        re.compile(rf"\bsteps: [0-9]{{1,18}} loss:{VALUE}", re.IGNORECASE),
        late=("iter time (s): ",),
    ),
    Framework(
        "MaxText",
        "AI-Hypercomputer/maxtext metric_logger.py; jax-ml's course quotes its log",
        "completed step: ",
        re.compile(r"\bcompleted step: ([0-9]{1,18}), seconds: "),
        re.compile(rf"\bloss:{VALUE}", re.IGNORECASE),
        re.compile(rf"\bgrad_norm:{VALUE}", re.IGNORECASE),
        re.compile(rf", seconds: {NUMBER},"),
        late=("completed step: ",),
    ),
    Framework(
        "nanotron",
        "huggingface/nanotron trainer.py; a log of 2024-08-31",
        "| elapsed_time_per_iteration_ms: ",
        re.compile(r"\biteration: ([0-9]{1,18}) / [0-9]"),
        re.compile(rf"\blm_loss:{VALUE}", re.IGNORECASE),
        re.compile(rf"\bgrad_norm:{VALUE}", re.IGNORECASE),
        re.compile(rf"\| elapsed_time_per_iteration_ms: {NUMBER}([KM]?) \|"),
        unit=MS,
        is_mean=True,
        late=("| elapsed_time_per_iteration_ms: ",),
    ),
    Framework(
        "verl",
        "volcengine/verl utils/logger; logs of its users",
        "timing_s/step:",
        re.compile(r"(?:^|[\s)])step:([0-9]{1,18}) - "),
        re.compile(rf"\bactor/(?:pg_)?loss:{_NUMPY}{VALUE}", re.IGNORECASE),
        re.compile(rf"\bactor/grad_norm:{_NUMPY}{VALUE}", re.IGNORECASE),
        re.compile(rf"\btiming_s/step:{_NUMPY}{NUMBER}"),
        late=("timing_s/step:",),
        may_grow=True,
        critic=(
            re.compile(rf"\bcritic/vf_loss:{_NUMPY}{VALUE}", re.IGNORECASE),
            re.compile(rf"\bcritic/grad_norm:{_NUMPY}{VALUE}", re.IGNORECASE),
        ),
    ),
    Framework(
        "slime",
        "THUDM/slime; NVIDIA-NeMo/ProRL-Agent-Server#40",
        "'train/step': ",
        re.compile(r"'train/step': ([0-9]{1,18})\b"),
        re.compile(rf"'train/loss':{VALUE}", re.IGNORECASE),
        re.compile(rf"'train/grad_norm':{VALUE}", re.IGNORECASE),
        late=("'train/step': ",),
        may_grow=True,
    ),
    Framework(
        "fairseq",
        "facebookresearch/fairseq logging/progress_bar.py; a log of 2023-06-13",
        "| train_inner | ",
        re.compile(r"\bnum_updates=([0-9]{1,18})\b"),
        re.compile(rf" loss={VALUE}", re.IGNORECASE),
        re.compile(rf"\bgnorm={VALUE}", re.IGNORECASE),
        re.compile(rf"\bups={NUMBER}"),
        unit=0.0,
        is_mean=True,
        late=("| train_inner | epoch ",),
    ),
    Framework(
        "mmengine and MMCV",
        "open-mmlab/mmengine runner/log_processor.py; logs of mmdetection",
        "data_time: ",
        re.compile(
            r"\b(?:Iter|Epoch)(?:\(train\))? {0,4}(?:\[(?P<epoch>[0-9]{1,9})\])?"
            r"\[ {0,12}(?P<step>[0-9]{1,12})/ {0,4}(?P<of>[0-9]{1,12})\]"
        ),
        re.compile(rf"\bloss:{VALUE}", re.IGNORECASE),
        re.compile(rf"\bgrad_norm:{VALUE}", re.IGNORECASE),
        re.compile(rf"(?<!\w)time: {NUMBER}"),
        data=re.compile(rf"\bdata_time: {NUMBER}"),
        is_mean=True,
    ),
    Framework(
        "torchvision's references, DETR, DINO and MAE",
        "pytorch/vision references/detection/utils.py; Alpha-VLLM/LLaMA2-Accessory#48; its times are those of 20 steps",
        "  data: ",
        re.compile(
            r"\bEpoch: \[(?P<past>[0-9]{1,9})(?:/[0-9]{1,9})?\] {1,4}"
            r"\[ {0,12}(?P<step>[0-9]{1,12})/(?P<of>[0-9]{1,12})\]"
        ),
        re.compile(rf"  c?loss:{VALUE}", re.IGNORECASE),
        re.compile(rf"  grad_norm:{VALUE}", re.IGNORECASE),
    ),
    Framework(
        "NeMo 1",
        "the bar of PyTorch Lightning, as NVIDIA's dgxc-benchmarking quotes it",
        "train_step_timing in s=",
        re.compile(r"\bglobal_step=([0-9]{1,18})\b"),
        re.compile(rf"\breduced_train_loss={VALUE}", re.IGNORECASE),
        duration=re.compile(rf"\btrain_step_timing in s={NUMBER}"),
        late=("train_step_timing in s=",),
    ),
    Framework(
        "bars of Lightning, diffusers and kohya",
        "Lightning-AI/pytorch-lightning#4225 and #7672, TMElyralab/MuseTalk#230: tqdm's, with the loss behind the rate",
        "%|",
        re.compile(
            r"(?:\bEpoch (?P<past>[0-9]{1,9})|\b[Ss]teps): {1,4}[0-9]{1,3}%\|[^|]{0,1000}\| {0,4}"
            r"(?P<step>[0-9]{1,12})/(?P<of>[0-9]{1,12}) \[[0-9:?<]{3,40}, {1,4}[0-9.?]{1,12}(?:it/s|s/it), "
        ),
        re.compile(rf"[ ,](?:(?:train|training|avr|step)[_/])?loss(?:_step)?={VALUE}", re.IGNORECASE),
        re.compile(rf"\bgrad_norm(?:_step)?={VALUE}", re.IGNORECASE),
        late=("it/s, loss=", "s/it, loss=", "it/s, v_num=", "s/it, v_num=", "it/s, avr_loss=", "s/it, avr_loss="),
    ),
    Framework(
        "torchtune",
        "pytorch/torchtune training/metric_logging.py; logs of its users",
        "| loss:",
        re.compile(r"(?:^|[\s)])Step ([0-9]{1,18}) {1,4}\| loss:"),
        re.compile(rf"\| loss:{VALUE}", re.IGNORECASE),
        re.compile(rf"\bgrad_norm:{VALUE}", re.IGNORECASE),
        re.compile(rf"\btime_per_step_s:{NUMBER}"),
    ),
    Framework(
        "OLMo and OLMo-core",
        "allenai/OLMo-core train/callbacks/console_logger.py; a log of OLMo of 2024-04-17",
        "[step=",
        re.compile(r"\[step=([0-9]{1,18})/[0-9,]{1,24}[],]"),
        re.compile(rf"\btrain/(?:CE loss|CrossEntropyLoss)={VALUE}", re.IGNORECASE),
        re.compile(rf"\boptim/total grad norm={VALUE}", re.IGNORECASE),
        late=("train/CE loss=", "train/CrossEntropyLoss="),
        has_block=True,
    ),
    Framework(
        "Composer",
        "mosaicml/composer loggers/console_logger.py; logs of LLM Foundry",
        "[batch=",
        re.compile(r"(?:\[epoch=(?P<epoch>[0-9]{1,9})\])?\[batch=(?P<step>[0-9]{1,18})/(?P<of>[0-9]{1,18})\]:"),
        re.compile(rf"\bTrain loss/train/total:{VALUE}", re.IGNORECASE),
        re.compile(rf"\bTrain l2_norm/grad/global:{VALUE}", re.IGNORECASE),
        late=("Train loss/train/total: ",),
        has_block=True,
    ),
)
LATE = tuple(word.encode() for framework in FRAMEWORKS for word in framework.late)


def is_of_any(line: str) -> bool:
    """Whether a line is one framework's step line."""
    return any(framework.word in line and framework.step.search(line) for framework in FRAMEWORKS)


@dataclass
class Frameworks:
    """The state of parsing these lines."""

    rank: int = 0  # of the file
    bar: int = 0  # after names of containers
    before: dict[Printer, int] = field(default_factory=dict)  # the previous line's step, by printer
    blocks: dict[Printer, tuple[Framework, int]] = field(default_factory=dict)  # what the following lines are about
    has_other: bool = False  # whether something other than steps happened since the last one
    repeated: Repeated = field(default_factory=Repeated)

    def take(self, line: str, where: str) -> Iterator[Step | Loss]:
        """The step in this line, if any, and its loss. Raises RunError."""
        for framework in FRAMEWORKS:
            if framework.word in line and (match := framework.step.search(line)):
                yield from self._step(framework, match, line, where)
                return
            self.has_other |= framework.other != "" and framework.other in line
        if self.blocks and ("=" in line or ":" in line):
            source = printer(line, self.rank, self.bar)
            if source in self.blocks:
                framework, step = self.blocks[source]
                yield from _losses(framework, line, source, step)

    def _step(self, framework: Framework, match: re.Match[str], line: str, where: str) -> Iterator[Step | Loss]:
        source, step = printer(line, self.rank, self.bar), _number(match, where)
        last = self.before.get(source)
        self.before[source] = step
        if framework.has_block:
            self.blocks[source] = framework, step
            return
        yield from self.repeated.losses(_losses(framework, line, source, step), is_again=step == last)
        if step != last:
            times = step - last if framework.is_mean and last is not None and step > last else 1
            is_timed, self.has_other = not self.has_other, False
            if timed := is_timed and framework.duration and framework.duration.search(line):
                lasted = _seconds(framework, timed, where)
                waited = framework.data and framework.data.search(line)
                parts = {"data": seconds(waited[1], "data_time", where)} if waited else {}
                if lasted is not None:
                    is_unnamed = source.is_unnamed
                    yield Step(Position(source.rank), step, lasted, parts, times, is_unnamed=is_unnamed)


def _number(match: re.Match[str], where: str) -> int:
    """The step number, continuing through all epochs. Raises RunError."""
    groups = match.groupdict()
    if not groups:
        return integer(match[1], "step", where)
    step, of = (integer(groups[name], "step", where) for name in ("step", "of"))
    if groups.get("past"):
        return step + integer(groups["past"], "epoch", where) * of
    return step + (max(1, integer(groups["epoch"], "epoch", where)) - 1) * of if groups.get("epoch") else step


def _seconds(framework: Framework, timed: re.Match[str], where: str) -> float | None:
    """The step's duration; None if a rate is 0. Raises RunError."""
    number = seconds(timed[1], "the time of a step", where) * _TIMES[timed[2] if len(timed.groups()) > 1 else ""]
    if framework.unit:
        return number * framework.unit
    return 1 / number if number else None


def _losses(framework: Framework, line: str, source: Printer, step: int) -> Iterator[Loss]:
    of_critic = ((CRITIC, framework.critic),) if framework.critic else ()
    for printed_by, forms in ((source.words, (framework.loss, framework.norm)), *of_critic):
        loss, norm = (value_of(match[1]) if form and (match := form.search(line)) else None for form in forms)
        if loss is not None or norm is not None:
            yield Loss(source.rank, step, loss, norm, printed_by=printed_by, may_grow=framework.may_grow)
