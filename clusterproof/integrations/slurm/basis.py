"""What a verdict rests on besides the node: once any of it has changed, the verdict serves no further job."""

from __future__ import annotations

import os
import time

from clusterproof.integrations.slurm.settings import Settings

INDEX = f"{__file__.rpartition('/integrations/')[0]}/plugins/suite/checks.json"  # written with each version
UNNAMED = ("clusterproof.toml", "pyproject.toml")  # where a policy is looked for if none is named


def basis_of(settings: Settings) -> str:
    """The settings of the checks, the policy's file, what is installed, and the day, as rules of a policy end on one.

    The mode and `at_deadline` are not in it: they decide what becomes of a verdict, each time anew.
    """
    rests_on = (settings.deadline_s, settings.instance_type, *map(_version, files_of(settings)))
    return repr((rests_on, time.localtime()[:3]))


def files_of(settings: Settings) -> tuple[str, ...]:
    """The policy's file, or where one is looked for, and a file that is written with each version."""
    return (INDEX, settings.policy) if settings.policy else (INDEX, *UNNAMED)


def _version(file: str) -> tuple[str, int, int, int]:
    """What changes whenever a file is written or replaced, whatever times it is given: nobody sets a ctime back."""
    try:
        data = os.stat(file)  # noqa: PTH116 - pathlib costs an import before each job
    except OSError:
        return file, 0, 0, 0
    return file, data.st_ino, data.st_size, data.st_ctime_ns
