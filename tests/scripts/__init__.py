"""What `scripts/` runs and what is written by programs."""
