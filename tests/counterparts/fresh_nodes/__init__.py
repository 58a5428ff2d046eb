"""Fresh systems on which the commands of integrations/slurm/install.md are run as written."""
