"""Slurm: its nodes and jobs, as its own commands report them."""
