"""What every other package may import, and what imports none of them: verdicts, results, evidence as it came."""

__version__ = "0.1.0"
