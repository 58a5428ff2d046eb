"""Disks, mounted file systems and /etc/fstab."""
