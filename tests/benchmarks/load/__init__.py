"""What loads one node."""
