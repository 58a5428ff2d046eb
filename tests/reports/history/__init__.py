"""Runs beside each other."""
