"""Programs that compute exact integers on GPUs, on cores and between ranks; they run on nodes, mostly with PyTorch."""
