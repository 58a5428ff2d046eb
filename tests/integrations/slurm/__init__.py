"""Slurm's prolog, epilog and health check."""
