"""Fresh systems on which the commands of integrations/slurm/install.md run as written."""
