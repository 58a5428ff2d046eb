"""Slurm: its nodes and jobs, as its own commands tell of them."""
