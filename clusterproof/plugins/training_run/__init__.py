"""What a training run recorded of itself: its operations and steps, read from files, and what they come to."""
