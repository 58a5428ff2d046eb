"""Redaction of data that leaves a site."""
