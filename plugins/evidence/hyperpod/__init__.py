"""HyperPod: what a node is told of its cluster, and what SageMaker tells of it."""
