"""Reads a run: every file that is named, and of a folder those whose form is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

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
from clusterproof.plugins.training_run.unpacked import HEAD, LONG_HEAD, head_of

MAX_FILES = 20_000
MAX_NAMED = 3  # files in a note


@record
class Form:
    """A form of file: its words, how it is known by its first bytes, and how it is read."""

    words: str
    is_of: Callable[[bytes], bool]
    read: Callable[[Path], Iterable[Fact]]


LOG = Form("a log of Megatron-LM or torchtitan", is_log, read_log)
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


_FORMS = ", ".join(form.words for form in FORMS)


def read_run(paths: Sequence[str]) -> TrainingRun:
    """The run that these files and folders describe together. Raises RunError."""
    data = RunData()
    unknown: list[str] = []
    is_known = False
    for named in map(Path, paths):
        is_folder = named.is_dir()
        for path in _files(named) if is_folder else (named,):
            form = _form_of(path)
            if form:
                data.add(form.read(path), str(path))
                is_known = True
            elif not is_folder:
                raise RunError(f"{path}: its form is not known; expected {_FORMS}")
            elif _is_of_recording(path.relative_to(named)):
                is_known = True
            else:
                unknown.append(path.name)
    if not is_known:
        found = f"none of its files ({_named(unknown)}) has a form that is known" if unknown else "no file in it"
        raise RunError(f"{', '.join(paths):.200}: {found}; expected {_FORMS}")
    data.notes += [
        f"{what}: {_named(names)}"
        for what, names in (("not understood", unknown), ("cut", data.cut), ("nothing of a run in", data.empty))
        if names
    ]
    return TrainingRun(_name(paths), data)


def _is_of_recording(path: Path) -> bool:
    """Whether `clusterproof watch --record` has put it beside its samples: it is about nodes, and not about a run."""
    return path.name in ("cluster.json", "changes.jsonl") or path.parts[0] == "nodes"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _form_of(path: Path) -> Form | None:
    for size in (HEAD, LONG_HEAD):
        head = head_of(path, size)
        form = next((form for form in FORMS if form.is_of(head)), None)
        if form or len(head) < size:
            return form
    return LOG if comes_to_iterate(path) else None


def _files(folder: Path) -> Iterator[Path]:
    """The files under a folder, in the order of their names. Raises RunError."""
    found = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            found += 1
            if found > MAX_FILES:
                raise RunError(f"{folder}: more than {MAX_FILES:,} files; expected the folder of one run")
            yield path


def _name(paths: Sequence[str]) -> str:
    """What the run is called: its first file or folder, without what says its form."""
    path = Path(paths[0]).resolve()
    return path.name.partition(".")[0] or path.name or "run"
