"""A real Kubernetes on loopback: etcd, API server and controllers, and a kubelet over a containerd of its own."""
