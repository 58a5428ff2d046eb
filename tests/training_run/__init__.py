"""Training runs: what is read of them, and what is said of them."""
