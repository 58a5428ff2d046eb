"""What AWS reports of instances, HyperPod clusters and file systems of FSx."""
