"""The lines that stand over a run: what is validated, and what of it is not looked at."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.evidence.kernel_log.window import window

if TYPE_CHECKING:
    from clusterproof.plugins.captures.collection import Understood
    from clusterproof.plugins.redaction.redact import Redaction

MAX_NODES = 300  # characters of a nodeset
_FOLDERS = ("rootdir:", "configfile:", "testpaths:", "cachedir:")


def of_cluster(shown: Cluster) -> Iterator[str]:
    """Which nodes, how they are reached, of what types, and what its inventory says of them."""
    types = sorted({target.instance_type for target in shown.targets if target.instance_type})
    nodes = within(fold(target.name for target in shown.targets), MAX_NODES)
    count = number_of(len(shown.targets), "node")
    of_types = f", {', '.join(types)}" if types else ""
    yield f"cluster: {shown.name}: {count} ({nodes}) by {shown.connection}{of_types}"
    yield from (f"cluster: {note}" for note in shown.notes)


def of_window(option: str) -> Iterator[str]:
    """How far back the kernel log counts, where that is not the whole boot."""
    since = window(option)
    if not since.is_boot:
        yield f"kernel log: only what it logged {since.in_words} counts"


def of_captures(captured: Sequence[Understood], redaction: Redaction | None) -> Iterable[str]:
    """The files of a capture that were not understood, by name."""
    if not captured:
        return ()
    from clusterproof.plugins.captures.collection import not_understood  # most runs read no capture

    return not_understood(captured, is_redacted=redaction is not None)


class OwnHeader:
    """Keeps to itself where on this machine a redacted run is."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_header(self) -> Generator[None, list[str | list[str]], list[str]]:
        """Leave out the lines of pytest's own that name folders."""
        data = yield
        lines = (line for entry in data for line in ([entry] if isinstance(entry, str) else entry))
        return [line for line in lines if not line.startswith(_FOLDERS)]
