"""By one srun, from a host where Slurm's commands are."""
