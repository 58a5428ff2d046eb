"""Versions, images and the environment that jobs inherit."""
