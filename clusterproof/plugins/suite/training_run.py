"""Training runs in a session: `--run PATH` is read once, and checked with the cluster or by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.aws.s3 import S3, fetched
from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.suite.state import TRAINING_RUN
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.placement import Slots
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.sample_columns import STEPS_FILE, SUFFIX

REPLAY = "replay:"
CONNECTION = "run"  # connection of the placeholder cluster, without nodes, for a run alone
_OF_NODES = ("nodes", "exclude", "instance_type", "expect", "record", "bundle", "redact")  # options


class RunHeader:
    """The plugin that prints which training run is evaluated."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run

    def pytest_report_header(self) -> list[str]:
        """The header: what was read."""
        return [printable(line) for line in self._lines()]

    def _lines(self) -> Iterator[str]:
        data = self.run.data
        ranks = len({*data.positions, *data.dumps})
        counts = ((len(data.files), "file"), (ranks, "rank"), (self.run.step_count, "step"))
        yield f"run: {self.run.name}: {', '.join(number_of(number, noun) for number, noun in counts)}"
        yield from (f"run: {note}" for note in data.notes)


def begin(config: pytest.Config, policy: Policy) -> None:
    """Read the run that the command line names, if any. Raises pytest.UsageError."""
    paths = config.getoption("--run") or _recorded(config)
    if not paths:
        return
    try:
        run = replace(_read(paths, config), policy=policy)
    except (RunError, AwsError) as wrong:
        raise pytest.UsageError(f"--run: {printable(str(wrong))}") from None
    config.stash[TRAINING_RUN] = run
    config.pluginmanager.register(RunHeader(run), "clusterproof-training-run")


def _read(paths: Sequence[str], config: pytest.Config) -> TrainingRun:
    """Read the run; data from S3 is on disk only meanwhile. Raises RunError, AwsError."""
    if not any(path.startswith(S3) for path in paths):
        return read_run(paths)
    account = Account(config.option.region or "", config.option.profile or "")
    with TemporaryDirectory(prefix="clusterproof-run-") as folder:
        local = [
            str(fetched(account, path, Path(folder, str(number)))) if path.startswith(S3) else path
            for number, path in enumerate(paths)
        ]
        return read_run(local)


def with_nodes(config: pytest.Config, cluster: Cluster) -> None:
    """Tell the run the nodes that it may have used."""
    if cluster.targets:
        nodes = tuple(Slots(target.name, _gpus(target)) for target in cluster.targets)
        run = replace(config.stash[TRAINING_RUN], cluster=config.getoption("--cluster") or "", nodes=nodes)
        config.stash[TRAINING_RUN] = run


def _gpus(target: Target) -> int:
    known = instance_types().get(target.instance_type)
    return target.expect.get("gpus") or (known.gpus if known else None) or 0


def _recorded(config: pytest.Config) -> list[str]:
    """The samples of `clusterproof watch --record` in the replayed recording."""
    folder = Path((config.getoption("--cluster") or "").removeprefix(REPLAY))
    paths = (*sorted(folder.glob(f"*{SUFFIX}")), folder / STEPS_FILE)
    return [str(path) for path in paths if path.is_file() and not path.is_symlink()]


def without_nodes(config: pytest.Config) -> Cluster:
    """The placeholder for a missing cluster. Raises pytest.UsageError."""
    named = next((name for name in _OF_NODES if getattr(config.option, name)), "")
    if named:
        raise pytest.UsageError(
            f"--{named.replace('_', '-')} is about nodes, and --run has none; expected --cluster X too"
        )
    return Cluster(config.stash[TRAINING_RUN].name, CONNECTION, ())
