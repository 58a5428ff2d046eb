"""Programs that measure the bandwidth between two nodes: how each is called, and what its output says."""
