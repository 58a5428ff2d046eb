"""Programs that load nodes and the network, and the analysis of what they measure."""
