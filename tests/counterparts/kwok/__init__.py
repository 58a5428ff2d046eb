"""Kwok: kubelets of a thousand nodes."""
