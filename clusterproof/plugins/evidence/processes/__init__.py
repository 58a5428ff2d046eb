"""Processes: what hangs, what jobs have left, and what a login may use."""
