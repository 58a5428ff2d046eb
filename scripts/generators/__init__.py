"""What is made of the code and kept in the tree; `scripts/generate` runs each."""
