"""Installed software: versions, libraries, the image."""
