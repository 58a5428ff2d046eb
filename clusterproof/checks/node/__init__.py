"""Whether the node answers at all; these checks run first."""
