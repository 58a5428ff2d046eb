"""Tests of `scripts/` and of generated files."""
