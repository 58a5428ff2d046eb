"""Malicious nodes and users."""
