"""Where a node looks for programs and libraries: nowhere that another user could have put one. Travels; Python 3.8."""

from __future__ import annotations

import os

from clusterproof.plugins.agent.trust import distrust

PASSED_OVER = "CLUSTERPROOF_PASSED_OVER"  # in the environment of commands: which folders are not searched, in words


def searched(folders: str, doubts: dict[str, str]) -> str:
    """A search path without entries that depend on the working folder; as root, also without those in doubt.

    Adds why other users could have put a program or library there.
    """
    absolute = [folder for folder in folders.split(":") if folder.startswith("/")]
    if not os.geteuid():
        doubts.update((folder, why) for folder, why in zip(absolute, map(_doubt, absolute)) if why)
    return ":".join(folder for folder in absolute if folder not in doubts)


def _doubt(folder: str) -> str:
    """Who else could have put a file in a folder, or could create it."""
    while True:
        try:
            return distrust(folder)
        except FileNotFoundError:
            folder = os.path.dirname(folder)
        except OSError as problem:
            return problem.strerror or str(problem)
