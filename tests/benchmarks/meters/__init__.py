"""Meters, and how their output is read."""
