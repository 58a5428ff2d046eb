"""The catalogue's numbers and words."""
