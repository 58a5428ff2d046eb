"""Installed software and its versions, and the environment that jobs get."""
