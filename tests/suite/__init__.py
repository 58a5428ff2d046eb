"""Pytest meets a cluster."""
