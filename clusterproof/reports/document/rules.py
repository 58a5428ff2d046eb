"""The rules that a training run was checked against, and how often each was violated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from clusterproof.plugins.catalog import thresholds
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.rules.steps import outliers
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import GPU
from clusterproof.reports.document import table

MAX_WORDS = 400  # characters of the remedy
FOUND = (Verdict.FAIL, Verdict.CONCERN)
STEPS, RANKS, SAMPLES, LOSSES = "step", "rank", "sample", "logged value"
# The subject of each rule. Unknown for third-party rules.
LOOKS_AT = {
    **dict.fromkeys(("step_outliers", "step_drift", "stragglers", "held_up", "init_time", "checkpoint_share"), STEPS),
    **dict.fromkeys(("data_wait", "comm_exposed", "slow_rank", "work_uneven", "stages_uneven"), RANKS),
    **dict.fromkeys(("last_to_come", "first_missing", "collectives_match"), RANKS),
    **dict.fromkeys(("gpu_busy", "gpu_fluctuates", "load_balance", "cpu_bound", "io_bound", "hung"), SAMPLES),
    **dict.fromkeys(("gpu_memory_growth", "batch_size", "slow_clock", "gpu_lost"), SAMPLES),
    **dict.fromkeys(("loss_finite", "loss_spikes"), LOSSES),
}
RECORDED: Mapping[str, Callable[[TrainingRun], int]] = {
    STEPS: lambda run: run.step_count,
    RANKS: lambda run: len({*run.data.positions, *run.data.dumps}),
    SAMPLES: lambda run: sum(len(series) for series in run.data.samples.series.values()),
    LOSSES: lambda run: sum(
        series.lines for all_of in (run.data.losses.losses, run.data.losses.norms) for series in all_of.values()
    ),
}


def rules_table(run: TrainingRun, results: Iterable[Result], compared: Mapping[str, Sequence[str]]) -> str:
    """A row for each evaluated rule, those violated most often first; empty if there are none.

    `compared` are the names of the thresholds of a rule, by its id.
    """
    by_rule: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.is_of_run and result.verdict not in (Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE):
            by_rule[result.check].append(result)
    ordered = sorted(by_rule.items(), key=lambda rule: (_worst(rule[1]).verdict.rank, -_times(run, *rule)))
    rows = [_row(run, check, of_rule, compared.get(check, ())) for check, of_rule in ordered]
    if not rows:
        return ""
    head = ("rule", "verdict", "triggered", "over", "compares with", "what to do")
    return f"<details><summary>The rules, and how often each triggered</summary>{table(head, rows)}</details>"


def _row(run: TrainingRun, check: str, results: Sequence[Result], compared: Sequence[str]) -> tuple[str, ...]:
    worst = _worst(results)
    times = _times(run, check, results)
    kind = LOOKS_AT.get(check.rpartition(".")[2], "")
    if check == "run.gpu_busy" and not run.data.samples.of(GPU):
        kind = RANKS  # whose traces replace samples
    over = number_of(RECORDED[kind](run), kind) if kind else ""
    todo = printable(worst.remedy, MAX_WORDS) if worst.verdict in FOUND else ""
    rule = f"{worst.title} ({check})"
    return rule, worst.verdict.value, number_of(times, "time"), over, _parameters(run, compared), todo


def _worst(results: Sequence[Result]) -> Result:
    return min(results, key=lambda result: result.verdict.rank)


def _times(run: TrainingRun, check: str, results: Sequence[Result]) -> int:
    """How often it was violated: the steps, ranks or GPUs it named, else whether it was."""
    triggered = [result for result in results if result.verdict in FOUND]
    if triggered and check == "run.step_outliers":
        return outliers(run.every_step).count
    return sum(max(1, len(result.devices)) for result in triggered)


def _parameters(run: TrainingRun, names: Sequence[str]) -> str:
    return "; ".join(f"{run.threshold(name):g} {thresholds()[name].unit} ({name})" for name in names)
