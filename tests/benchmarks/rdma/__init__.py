"""What runs on both nodes to exchange a few bytes."""
