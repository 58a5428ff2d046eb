"""The program `clusterproof`: its subcommands, their help, and pytest for runs."""
