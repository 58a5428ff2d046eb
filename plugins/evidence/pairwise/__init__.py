"""What is measured between nodes: readings of pairs, and what they come to."""
