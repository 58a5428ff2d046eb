"""The pytest plugin and everything behind it."""
