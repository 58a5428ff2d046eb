"""What Kubernetes' API is asked of a cluster: a file for each collector, with a function `read(api, names)`."""
