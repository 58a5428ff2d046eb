"""Trainium and Inferentia, AWS's accelerators."""
