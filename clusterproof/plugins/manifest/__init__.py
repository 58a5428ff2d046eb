"""The golden manifest of an image: what a node says to its rows, and how one is written from a good machine."""
