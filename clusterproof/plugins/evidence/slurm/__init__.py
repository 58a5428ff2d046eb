"""Slurm's nodes and jobs, from its own commands."""
