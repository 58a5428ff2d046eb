"""Networks: RDMA devices, EFA's counters, libfabric, interfaces, names and addresses."""
