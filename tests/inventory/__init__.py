"""X becomes a cluster."""
