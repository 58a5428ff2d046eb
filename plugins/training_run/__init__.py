"""What a training run told of itself: its operations and steps, read from files, and what they come to."""
