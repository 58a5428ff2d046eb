"""Exact products and what they are held against."""
