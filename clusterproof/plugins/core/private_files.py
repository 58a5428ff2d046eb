"""What a run writes holds users, processes, mounts and environments of nodes: for others it is not to be read."""

from __future__ import annotations

import os
from collections.abc import Callable

FOR_OTHERS = 0o077


def keep_private() -> Callable[[], None]:
    """Let all files and folders that this process makes from now on be its user's own; what is returned ends that.

    A file that others must read is given its mode by name, as the metrics for node_exporter.
    """
    before = os.umask(FOR_OTHERS)
    os.umask(before | FOR_OTHERS)

    def end() -> None:
        os.umask(before)

    return end
