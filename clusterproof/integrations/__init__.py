"""Integrations: programs and files that users configure in other systems."""
