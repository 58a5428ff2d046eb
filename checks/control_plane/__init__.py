"""What AWS, Slurm and Kubernetes say of the cluster itself."""
