"""Visits nodes by srun with a program made longer by this many characters, and prints what each received."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Limits
from tests.builders.probed import ANSWER_S, padded, reported

LIMITS = Limits(connect_s=ANSWER_S, answer_s=ANSWER_S, settings={"slurm_wait": str(ANSWER_S)})


def main(characters: str, *names: str) -> None:
    """Visit nodes of these names."""
    reports = reported("srun", [Target(name) for name in names], [padded(Path("/tmp"), int(characters))], LIMITS)
    sys.stdout.write(
        json.dumps(
            {evidence.node: evidence.detail or evidence.collectors["padded"].value for evidence in reports.values()}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
