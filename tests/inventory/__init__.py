"""From X to a cluster."""
