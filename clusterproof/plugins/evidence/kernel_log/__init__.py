"""The kernel log: parses lines into typed events."""
