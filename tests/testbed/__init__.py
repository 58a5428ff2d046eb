"""Fake nodes without GPUs: namespaces, overlays, sshd, and an NVML library that answers from a file."""
