"""Checks as data, and their evaluation on nodes, without pytest."""
