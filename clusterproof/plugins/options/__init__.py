"""The options of a run: one table of them, what they may not say, and mistakes in one line."""
