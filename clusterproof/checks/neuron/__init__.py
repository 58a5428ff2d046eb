"""Trainium and Inferentia: AWS's own accelerators."""
