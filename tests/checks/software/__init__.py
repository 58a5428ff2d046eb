"""Checks of software and of images."""
