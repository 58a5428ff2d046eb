"""Checks as data, and how a verdict on a node comes about; needs no pytest."""
