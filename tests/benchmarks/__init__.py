"""Benchmarks of nodes and networks."""
