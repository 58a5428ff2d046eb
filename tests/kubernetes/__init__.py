"""Kubernetes: its API, its clusters, and nodes reached by pods; with Kubernetes' own programs."""
