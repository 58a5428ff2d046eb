"""Watching a cluster while it works: what samplers send, states that open and close, the recording."""
