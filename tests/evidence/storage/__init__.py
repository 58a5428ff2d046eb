"""Mounts, Lustre and disks."""
