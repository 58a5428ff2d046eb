"""Slurm, asked on a host where its commands are: the program that starts others with srun, and what Slurm tells."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
