"""The program that runs on both nodes of a pair and exchanges a few bytes between their RDMA devices."""
