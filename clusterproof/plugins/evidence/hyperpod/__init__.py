"""HyperPod: what a node knows about its cluster, and what SageMaker reports about it."""
