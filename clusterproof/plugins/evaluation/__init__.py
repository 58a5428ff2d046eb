"""Checks as data, and their evaluation to verdicts; needs no pytest."""
