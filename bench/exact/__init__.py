"""Faults in exact arithmetic, and none: how many are found."""
