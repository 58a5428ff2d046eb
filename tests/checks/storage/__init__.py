"""Checks of disks and file systems."""
