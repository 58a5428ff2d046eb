"""Kubernetes: its own programs, helm (installs charts), and kwok (kubelets of a thousand nodes)."""
