"""One record of a run, many forms."""
