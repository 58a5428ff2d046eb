"""What is installed, in which version, and what jobs find in their environment."""
