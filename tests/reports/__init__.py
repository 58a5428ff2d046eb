"""One record of a run, many formats."""
