"""Load on nodes and measurements of pairs in a run: options and output."""
