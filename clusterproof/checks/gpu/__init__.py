"""GPUs and what connects them."""
