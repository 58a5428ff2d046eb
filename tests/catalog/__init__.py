"""Numbers and words."""
