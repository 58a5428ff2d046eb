"""Writes a labelled case as the folder that a colleague would hand over."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.case.kept import at, logs_of_nodes, record_of_slurm, stamped
from tests.case.phrases import AFTER_WATCHDOG, CLOSING, PEER, STORE, WATCHDOG, filled
from tests.case.stories import LabelledCase
from tests.training_run.recorded import dump

RANKS, NODES = range(8), ("n1", "n2", "n3", "n4")
STEPS_S = 20.0  # between logged steps
LAUNCHER = -1
STARTS_S, LOGS_FROM_S = -7200.0, -1200.0
TIMEOUT_S = 600.0
Line = tuple[float, int, str]  # seconds since the fault, rank, text


def write(case: LabelledCase, folder: Path) -> Path:
    """Write the folder of a case."""
    here = folder / case.name
    here.mkdir(parents=True)
    chance = Random(case.name)
    _write_output(case, here, sorted(_lines(case, chance), key=lambda line: line[0]))
    record_of_slurm(case, here, nodes=tuple(map(case.node, NODES)))
    logs_of_nodes(case, here, chance)
    _write_pods(case, here)
    _write_results(case, here)
    _write_dumps(case, here)
    return here


def _lines(case: LabelledCase, chance: Random) -> Iterator[Line]:
    story = case.story.data
    yield from _steps(case)
    for text in story.get("output", ()):
        who, seconds, message = text.split(" ", 2)
        ranks = {"{all}": RANKS, "{peers}": RANKS[1:], "launcher": (LAUNCHER,)}.get(who) or (int(who),)
        for rank in ranks:
            when = float(seconds) + (chance.random() if len(ranks) > 1 else 0.0)
            yield when, rank, filled(message, case, f"{at(case, float(seconds)):%Y-%m-%dT%H:%M:%S}")
    for text in story.get("srun", ()):
        seconds, message = text.split(" ", 1)
        yield float(seconds), LAUNCHER, filled(message, case, "")
    yield from _cascade(case, chance)
    yield from _death(case)


def _steps(case: LabelledCase) -> Iterator[Line]:
    """A healthy run's output, up to the fault."""
    for rank in RANKS:
        node = case.node(NODES[rank // 2])
        prefix = f"{node}:{1000 + rank}:{2000 + rank} [{rank % 2}] NCCL INFO comm 0x55d0{rank} rank {rank} nranks 8"
        yield STARTS_S + 5, rank, f"{prefix} cudaDev {rank % 2}"
    first, end = (int((seconds - STARTS_S) / STEPS_S) for seconds in (LOGS_FROM_S, -2 * STEPS_S))
    for number in range(first, end):
        yield STARTS_S + 20 + number * STEPS_S, 0, f"iteration {number + 1}/90000 | lm loss: {9.1 - number / 100:.3f}"


def _cascade(case: LabelledCase, chance: Random) -> Iterator[Line]:
    kind, generation = case.story.data.get("cascade"), case.circumstance.generation
    dead = int(str(case.story.data.get("dies", "-1 0")).split()[0])
    silent = {dead, *case.story.data.get("silent", ())}
    for rank in (rank for rank in RANKS if rank not in silent):
        seconds = TIMEOUT_S + chance.random()
        if kind in ("watchdog", "watchdog_of_groups"):
            shown = rank // 4 if kind == "watchdog_of_groups" else rank
            message = WATCHDOG[generation].format(rank=shown, ms=int(TIMEOUT_S * 1000) + chance.randrange(90))
            yield seconds, rank, f"[rank{rank}]: {message}"
            yield seconds + 0.2, rank, f"[rank{rank}]: {AFTER_WATCHDOG[generation]}"
        elif kind == "peers":
            yield 4.0 + chance.random(), rank, PEER[generation] if rank % 3 else STORE[generation]
        elif kind == "torchrun" and rank % 2:
            yield 6.0 + chance.random(), LAUNCHER, CLOSING[generation]
        elif kind == "abort" and rank % 2:
            node = case.node(NODES[rank // 2])
            yield 12.0 + chance.random(), LAUNCHER, f"srun: error: {node}: task {rank}: Aborted (core dumped)"


def _death(case: LabelledCase) -> Iterator[Line]:
    """The launcher's report of the rank that died: torchrun's block, or srun's line."""
    if "dies" not in case.story.data:
        return
    rank, code = map(int, case.story.data["dies"].split())
    node = case.node(NODES[rank // 2])
    when = f"{at(case, 7.0):%Y-%m-%d_%H:%M:%S}"
    if case.circumstance.generation == 0:
        line = {-9: "Killed", -7: "Bus error", -11: "Segmentation fault"}.get(code, f"Exited with exit code {code}")
        yield 7.0, LAUNCHER, f"srun: error: {node}: task {rank}: {line}"
        return
    yield 7.0, LAUNCHER, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    block = (
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {when}",
        f"  host      : {node}",
        f"  rank      : {rank} (local_rank: {rank % 2})",
        f"  exitcode  : {code} (pid: 8812)",
        "  error_file: <N/A>",
    )
    for number, line in enumerate(block):
        yield 7.001 + number / 1000, LAUNCHER, line


def _write_output(case: LabelledCase, here: Path, lines: list[Line]) -> None:
    if case.story.data.get("pods") and not any(rank == LAUNCHER or seconds > -30 for seconds, rank, _ in lines):
        return  # nobody kept it
    files: dict[str, list[str]] = {}
    for seconds, rank, text in lines:
        name, before = _place(case, rank)
        for number, line in enumerate(text.splitlines()):
            stamp = stamped(case, seconds, rank) if not number and _has_stamp(line) else ""
            files.setdefault(name, []).append(f"{before}{stamp}{line}")
    kept = case.circumstance.kept
    for name, output in files.items():
        if kept == "rank 0 alone" and name not in ("rank_0.log", "launcher.err"):
            continue
        output = output[: -len(output) // 10 or None] if kept == "cut" else output
        (here / name).write_text("".join(f"{line}\n" for line in output), encoding="utf-8")


def _has_stamp(line: str) -> bool:
    """Launchers' lines have none, nor have a traceback's from Python."""
    return not line.startswith(("srun:", "slurmstepd:", "  ", "[0]:", "Root Cause"))


def _place(case: LabelledCase, rank: int) -> tuple[str, str]:
    """The file with a rank's lines, and the prefix of each line."""
    layout = case.circumstance.layout
    if rank == LAUNCHER:
        return ("slurm-77.out" if layout != "files" else "launcher.err"), ""
    if layout == "files":
        return f"rank_{rank}.log", ""
    return "slurm-77.out", f"{rank}: " if layout == "labelled" else f"[rank{rank}]: "


def _write_pods(case: LabelledCase, here: Path) -> None:
    items = [_pod(case, text) for text in case.story.data.get("pods", ())]
    if items:
        (here / "kubectl.json").write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")


def _pod(case: LabelledCase, text: str) -> dict[str, object]:
    """`POD NODE REASON CODE +S`; `!REASON` is the pod's, `?REASON` a disruption, `*Job` and `+Event` other objects."""
    name, node, what, *rest = text.split(" ", 4)
    if node in ("*Job", "+Event"):
        when = f"{at(case, float(rest[0])):%Y-%m-%dT%H:%M:%SZ}"
        if node == "+Event":
            return {
                "kind": "Event",
                "reason": what,
                "message": rest[1],
                "lastTimestamp": when,
                "involvedObject": {"name": name},
            }
        failed = {"type": "Failed", "status": "True", "reason": what, "message": rest[1], "lastTransitionTime": when}
        return {"kind": "Job", "metadata": {"name": name}, "status": {"conditions": [failed]}}
    pod = {"kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": case.node(node)}}
    if what[0] == "!":
        return {**pod, "status": {"phase": "Failed", "reason": what[1:], "message": rest[1]}}
    if what[0] == "?":
        when = f"{at(case, float(rest[0])):%Y-%m-%dT%H:%M:%SZ}"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": what[1:],
            "message": rest[1],
            "lastTransitionTime": when,
        }
        return {**pod, "status": {"phase": "Failed", "conditions": [condition]}}
    when = f"{at(case, float(rest[1])):%Y-%m-%dT%H:%M:%SZ}"
    ended = {"reason": what, "exitCode": int(rest[0]), "finishedAt": when}
    return {**pod, "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}}


def _write_results(case: LabelledCase, here: Path) -> None:
    lines = []
    for text in case.story.data.get("results", ()):
        node, check, message = text.split(" ", 2)
        row = {"schema": 2, "check": check, "node": case.node(node), "verdict": "fail", "message": message}
        lines.append(json.dumps({**row, "action": "reset or reboot"}))
    if lines:
        (here / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_dumps(case: LabelledCase, here: Path) -> None:
    """Dumps of four ranks, which wait for those that left none."""
    without = case.story.data.get("dumps_without", ())
    for rank in range(4) if without else ():
        if rank not in without:
            dumped = pickle.dumps(dump(rank, {"0": (12, 11)}), protocol=2)
            (here / f"nccl_trace_rank_{rank}").write_bytes(dumped)
