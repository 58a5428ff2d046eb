"""Readers of training runs' files, one module per tool; modules with `FORMATS` are found automatically."""
