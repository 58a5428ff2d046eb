"""How pytest meets a cluster."""
