"""What measures, and what is read of it."""
