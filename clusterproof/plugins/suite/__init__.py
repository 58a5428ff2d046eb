"""The pytest plugin for runs over a cluster."""
