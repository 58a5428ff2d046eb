"""The pytest plugin: collection, items, the run loop, outcomes and the terminal."""
