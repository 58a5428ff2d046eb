"""What the scheduler and the cloud say of the cluster."""
