"""Helm, which installs charts."""
