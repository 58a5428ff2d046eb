"""Checks on evidence that no fault of the matrix produces; one folder per subsystem."""
