"""Lustre clients: their servers, and the space that these have left."""
