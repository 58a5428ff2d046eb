"""Plugins of others beside ours, and a suite of others where ours is installed."""
