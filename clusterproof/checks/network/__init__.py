"""EFA, InfiniBand, RoCE and Ethernet."""
