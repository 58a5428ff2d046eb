"""What computes exact integers on GPUs, cores and between ranks; runs on nodes, mostly in a Python with PyTorch."""
