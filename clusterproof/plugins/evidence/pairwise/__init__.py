"""What is measured between nodes: runs of pairs, and what follows from them."""
