"""Exact products and their references."""
