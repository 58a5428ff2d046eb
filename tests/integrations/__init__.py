"""Integrations built on the suite."""
