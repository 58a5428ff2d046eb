"""Watching a cluster while it works: what samplers tell, states that open and close, the recording."""
