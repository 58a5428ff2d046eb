"""Load on nodes and pairwise tests within a run."""
