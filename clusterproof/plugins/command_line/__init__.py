"""The program `clusterproof`: its subcommands, their help, and pytest where a run is asked for."""
