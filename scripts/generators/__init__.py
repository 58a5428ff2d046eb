"""Generators of files in the repository that derive from the code; `scripts/generate` runs each."""
