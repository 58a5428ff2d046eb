"""Load on a single node."""
