"""GPUs, NVLink and PCIe."""
