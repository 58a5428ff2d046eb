"""Connections to nodes."""
