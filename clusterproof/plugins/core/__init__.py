"""What every other room may import, and what imports none of them: verdicts, results, evidence as it came."""
