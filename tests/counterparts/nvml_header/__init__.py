"""NVIDIA's own nvml.h: what the fake NVML library and the probe assume of its functions and structures."""
