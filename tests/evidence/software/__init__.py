"""Versions, images and what jobs inherit."""
