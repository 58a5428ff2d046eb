"""The kernel log: from lines to typed events."""
