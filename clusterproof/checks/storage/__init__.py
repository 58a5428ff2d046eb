"""File systems."""
