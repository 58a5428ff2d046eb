"""NVIDIA's mock of NVML, with its fault injector, in place of the fake NVML library."""
