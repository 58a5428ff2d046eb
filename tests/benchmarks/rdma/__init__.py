"""Programs that exchange a few bytes between two nodes."""
