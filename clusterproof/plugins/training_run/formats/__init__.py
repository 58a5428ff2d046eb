"""Readers of a run's files, a module for each tool that writes them; each has `FORMATS`, by which it is found."""
