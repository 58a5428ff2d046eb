"""Pairs: planned, measured, understood."""
