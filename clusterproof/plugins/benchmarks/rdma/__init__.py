"""Programs that run on the two nodes of a pair to exchange a few bytes between their RDMA devices."""
