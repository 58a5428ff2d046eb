"""What Kubernetes tells of a cluster's nodes, pods, resource slices and queues."""
