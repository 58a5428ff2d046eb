"""Files that other programs are pointed to: Slurm, Kubernetes, image builders."""
