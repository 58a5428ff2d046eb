"""Slurm's prolog, epilog and health check: the suite's own checks, run by Slurm on each node (install.md)."""
