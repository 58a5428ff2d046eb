"""Checks of measurements."""
