"""Administrators' reasons that begin or end like Slurm's or clusterproof's own."""

from __future__ import annotations

REASONS = (
    "RMA 4711: the fan is loud",
    "clusterproof: looked at by hand",
    "clusterproof: gpu.gpu_answers: seen by Kim, do not resume",
    "Prolog of mine",
    "Prolog error again, PSU ticket 4711 - do NOT resume (jd)",
    "Prolog error: ask Kim",
    "Prolog errors",
    "Epilog error, third time: board swapped on Monday",
    "Epilog error [slurm@2026-01-01T00:00:00]",
    "Prolog error [root@2026-01-01T00:00:00]",
    "Prolog error\nPSU ticket 4711",
    "clusterproof: kept\n   State=IDLE ThreadsPerCore=1",
    "prolog error",
    "Kill task failed, twice",
    "firmware | ask Kim; 50 % – Größe",
)
