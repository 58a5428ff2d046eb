"""What a person sees while the nodes are asked: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence


@contextmanager
def progress(
    config: pytest.Config, cluster: Cluster, doing: str = "asking the nodes"
) -> Iterator[Callable[[NodeEvidence], None]]:
    """Yield a function to call for each node that answered."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not reporter.isatty or config.option.verbose < 0:
        yield lambda _evidence: None
        return
    from rich.console import Console  # imported here: only a person at a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=len(cluster.targets))
        unreached = 0

        def shown(evidence: NodeEvidence) -> None:
            nonlocal unreached
            unreached += evidence.unreached is not None
            words = f"{doing}, {unreached} not reached" if unreached else doing
            bar.update(task, advance=1, description=words)

        yield shown
