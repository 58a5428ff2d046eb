"""Load on nodes and networks, and the analysis of its measurements."""
