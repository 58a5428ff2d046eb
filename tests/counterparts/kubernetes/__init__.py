"""Kubernetes' own programs, which tests/testbed/kubernetes starts."""
