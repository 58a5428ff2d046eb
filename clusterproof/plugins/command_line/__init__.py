"""The command `clusterproof`: its subcommands, their help, and pytest for a run."""
