"""Disks and file systems."""
