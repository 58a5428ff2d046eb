"""A real Kubernetes on loopback: etcd, API server, controllers, and a kubelet with its own containerd."""
