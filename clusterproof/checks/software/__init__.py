"""What is installed, and whether it fits together."""
