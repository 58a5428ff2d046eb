"""The suite's own proof."""
