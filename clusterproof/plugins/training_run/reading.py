"""Reads a run: every file that is named, and of a folder those whose form is known."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from clusterproof.plugins.core.opened import Budget, is_folder
from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.read_dmon import is_dmon, read_dmon
from clusterproof.plugins.training_run.read_flight_recorder import is_dump, read_dump
from clusterproof.plugins.training_run.read_hostfile import is_hostfile, read_hostfile
from clusterproof.plugins.training_run.read_inspector import is_inspector, read_inspector
from clusterproof.plugins.training_run.read_kineto import is_trace, read_trace
from clusterproof.plugins.training_run.read_log import comes_to_iterate, is_log, read_log
from clusterproof.plugins.training_run.read_nvidia_smi import is_smi, read_smi
from clusterproof.plugins.training_run.read_pods import are_pods, read_pods
from clusterproof.plugins.training_run.read_prometheus import is_answer, read_answer
from clusterproof.plugins.training_run.read_sagemaker import are_metrics, read_metrics
from clusterproof.plugins.training_run.read_samples import are_samples, read_samples
from clusterproof.plugins.training_run.read_steps import are_steps, read_steps
from clusterproof.plugins.training_run.read_table import is_table, read_table
from clusterproof.plugins.training_run.records import RunError
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import Fact, RunData
from clusterproof.plugins.training_run.unpacked import HEAD, LONG_HEAD, MAX_BYTES, RunFile, head_of

MAX_FILES = 20_000
MAX_NAMED = 3  # files in a note


@record
class Form:
    """A form of file: its words, how it is known by its first bytes, and how it is read."""

    words: str
    is_of: Callable[[bytes], bool]
    read: Callable[[RunFile], Iterable[Fact]]


LOG = Form("a log of Megatron-LM, torchtitan or DeepSpeed", is_log, read_log)
FORMS = (
    Form("a table of operations or steps (CSV)", is_table, read_table),
    Form("steps (JSON lines)", are_steps, read_steps),
    Form("SageMaker's profiler (system)", are_metrics, read_metrics),
    Form("NCCL's Inspector", is_inspector, read_inspector),
    Form("samples of clusterproof watch", are_samples, read_samples),
    Form("a trace of PyTorch's profiler", is_trace, read_trace),
    Form("nvidia-smi --query-gpu=timestamp,… --format=csv", is_smi, read_smi),
    Form("dcgmi dmon", is_dmon, read_dmon),
    Form("Prometheus's query_range", is_answer, read_answer),
    Form("a dump of PyTorch's Flight Recorder", is_dump, read_dump),
    Form("a hostfile", is_hostfile, read_hostfile),
    Form("pods of a job (JSON lines)", are_pods, read_pods),
    LOG,
)


_EXECUTION_TRACE = re.compile(rb'\s*\{\s*"schema"\s*:\s*"[0-9]+\.[^"]{0,60}"')  # "1.1.1-chakra.0.0.4"
_FORMS = ", ".join(form.words for form in FORMS)


def read_run(paths: Sequence[str]) -> TrainingRun:
    """The run that these files and folders describe together. Raises RunError."""
    data = RunData()
    unknown: list[str] = []
    links: list[str] = []
    budget = Budget(MAX_BYTES)
    is_known = False
    for named in map(Path, paths):
        below = named if is_folder(named) else None
        for path in _files(named, links) if below else (named,):
            file = RunFile(path, below, budget)
            form = _form_of(file)
            if form:
                _read(file, form, data)
                is_known = True
            elif not below:
                raise RunError(f"{path}: {_why_unknown(file)}")
            elif _is_of_recording(path.relative_to(named)):
                is_known = True
            else:
                unknown.append(path.name)
    if not is_known:
        found = f"none of its files ({_named(unknown)}) has a form that is known" if unknown else "no file in it"
        raise RunError(f"{', '.join(paths):.200}: {found}; expected {_FORMS}")
    data.notes += [
        f"{what}: {_named(names)}"
        for what, names in (
            ("not understood", unknown),
            ("cut", data.cut),
            ("nothing of a run in", data.empty),
            ("not followed, as they are links", links),
        )
        if names
    ]
    return TrainingRun(_name(paths), data)


def _read(file: RunFile, form: Form, data: RunData) -> None:
    """Take in a file of this form. Raises RunError, whatever its reader breaks of."""
    try:
        data.add(form.read(file), str(file))
    except RunError:
        raise
    except Exception as wrong:  # what others have written may be anything
        raise RunError(f"{file}: {type(wrong).__name__}: {wrong!s:.100}; expected {form.words}") from None


def _is_of_recording(path: Path) -> bool:
    """Whether `clusterproof watch --record` has put it beside its samples: it is about nodes, and not about a run."""
    return path.name in ("cluster.json", "changes.jsonl") or path.parts[0] == "nodes"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _form_of(file: RunFile) -> Form | None:
    for size in (HEAD, LONG_HEAD):
        head = head_of(file, size)
        form = next((form for form in FORMS if _is_of(form, head)), None)
        if form or len(head) < size:
            return form
    return LOG if comes_to_iterate(file) else None


def _why_unknown(file: RunFile) -> str:
    """What a file is that is of none of these forms, as far as that can be told, and what to give instead."""
    if _EXECUTION_TRACE.match(head_of(file, HEAD)):
        return (
            "an execution trace of PyTorch, which has operators and no steps; "
            "expected the profiler's trace of the same run (export_chrome_trace)"
        )
    return f"its form is not known; expected {_FORMS}"


def _is_of(form: Form, head: bytes) -> bool:
    try:
        return form.is_of(head)
    except Exception:  # it begins like nothing that anybody means to write
        return False


def _files(folder: Path, links: list[str]) -> Iterator[Path]:
    """The files under a folder, in the order of their names, without links, which are noted. Raises RunError."""
    found = [Path(where, name) for where, _, names in os.walk(folder) for name in names if not name.startswith(".")]
    if len(found) > MAX_FILES:
        raise RunError(f"{folder}: more than {MAX_FILES:,} files; expected the folder of one run")
    for path in sorted(found):
        if path.is_symlink():
            links.append(path.name)
        elif path.is_file():
            yield path


def _name(paths: Sequence[str]) -> str:
    """What the run is called: its first file or folder, without what says its form."""
    path = Path(paths[0]).resolve()
    return path.name.partition(".")[0] or path.name or "run"
