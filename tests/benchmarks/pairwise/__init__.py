"""Pairs of nodes: scheduling, measurement, analysis."""
