"""Programs that compute exact integers on GPUs and cores and between ranks. They run on nodes, mostly with PyTorch."""
