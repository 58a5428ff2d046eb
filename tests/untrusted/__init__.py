"""Nodes and users that mean harm."""
