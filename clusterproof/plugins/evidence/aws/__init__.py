"""What AWS reports about instances, HyperPod clusters and FSx file systems."""
