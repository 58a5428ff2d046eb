"""What all other packages import: verdicts, results, clusters, evidence. Imports none of them."""

__version__ = "0.1.0"
