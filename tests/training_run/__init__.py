"""Training runs: what is read of them, and the checks' results."""
