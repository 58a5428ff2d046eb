"""Kubernetes' API: access to a cluster, and what it reports of its nodes, pods and daemon sets."""

HOST = "/host"  # where a pod of ours has the host's files
