"""What Kubernetes reports about a cluster's nodes, pods, resource slices and queues."""
