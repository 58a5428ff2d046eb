"""By a pod on each node of Kubernetes, or by the agents of a gate, which are there."""
