"""The entry point of Slurm's scripts."""

from __future__ import annotations

import gc

from clusterproof.integrations.slurm.kept_code import use


def main() -> None:
    """Answer one call, and exit."""
    gc.disable()  # it ends soon
    use()
    from clusterproof.integrations.slurm.main import main

    main()
