"""EFA, InfiniBand and what they need of the host."""
