"""Kubernetes: its API, the clusters that it knows, and nodes reached by pods; against Kubernetes' own programs."""
