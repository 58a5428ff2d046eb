"""The code behind the checks: inventory, transport, evidence, evaluation, and clusterproof's subcommands."""
