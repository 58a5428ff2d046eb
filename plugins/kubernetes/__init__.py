"""Kubernetes' API: the way into a cluster, and what it tells of its nodes, pods and daemon sets."""

HOST = "/host"  # where a pod of ours has the host's files
