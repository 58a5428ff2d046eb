"""Readers of the files that a run leaves, one file for each tool that writes them; what has `FORMATS` is found."""
