"""The root of every error that the suite raises for its users to see."""

from __future__ import annotations


class ClusterproofError(Exception):
    """What was asked for cannot be done as it was said; the message is one line with the way out."""
