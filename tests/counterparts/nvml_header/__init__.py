"""NVIDIA's own nvml.h: what the fake NVML library and the probe take its functions and structures to be."""
