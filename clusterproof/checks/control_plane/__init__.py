"""What AWS, Slurm and Kubernetes report about the cluster itself."""
