"""What a user points other programs to."""
