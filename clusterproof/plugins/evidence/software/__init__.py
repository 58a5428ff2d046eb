"""Installed software and versions, and the environment of jobs."""
