"""Random alterations of input from others: whatever results, it is read or refused, and in little time."""
