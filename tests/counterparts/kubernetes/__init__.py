"""Kubernetes: its own programs, helm, which installs charts, and kwok, kubelets of a thousand nodes."""
