"""What stands on the suite."""
