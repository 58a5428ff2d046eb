"""Checks of the cluster itself."""
