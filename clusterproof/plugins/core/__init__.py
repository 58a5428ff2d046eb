"""Verdicts, results, clusters and evidence: every other package may import this one, and it imports none of them."""

__version__ = "0.1.0"
