"""Checks of a training run."""
